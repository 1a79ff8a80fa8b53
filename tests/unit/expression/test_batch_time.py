from __future__ import annotations

import pytest

from jobs.expression.parser import asks_batch_time


@pytest.mark.parametrize(
    "text",
    [
        "now()",
        "NOW ( )",
        "current_timestamp",
        "Current_Date",
        "current_date()",
        "date_diff('day', at, now()) > 3",
        "case when a > 1 then b else cast(now() as date) end",
        "case when current_date > d then 1 end",
        "coalesce(at, date_trunc('hour', now()))",
        "at between d and current_timestamp",
        "a in (1, 2) or not (at < now() - interval '1 day')",
        "now()::date",
    ],
)
def test_what_asks_for_the_time_of_the_batch(text: str) -> None:
    assert asks_batch_time(text)


@pytest.mark.parametrize(
    "text",
    ["now", "a = 'now()'", '"current_date"', "`current_timestamp`", "p.now", "nowhere(1)", "now( +", "known() > 1", ""],
)
def test_names_and_texts_that_only_look_like_it_do_not(text: str) -> None:
    assert not asks_batch_time(text)
