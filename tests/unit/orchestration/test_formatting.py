"""Numbers and pictures for people say neither more nor less than is so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.tables.commit.stamp.lateness import Lateness
from orchestration.formatting import lateness, percentage, sparkline

SHARES = st.lists(st.none() | st.just(0.0) | st.floats(1e-9, 1.0), max_size=40)


def test_a_sparkline_rises_to_the_greatest() -> None:
    assert sparkline([0.0, 0.001, 0.5, None, 1.0]) == "▁▂▅?█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([0.002, 0.004]) == "▅█"
    assert sparkline([]) == ""


@given(SHARES)
def test_a_sparkline_never_hides_a_failure_nor_makes_one(told: list[float | None]) -> None:
    drawn = sparkline(told)
    assert len(drawn) == len(told)
    for share, character in zip(told, drawn, strict=True):
        assert (character == "?") == (share is None)
        assert (character == "▁") == (share == 0.0)
    known = sorted((share, character) for share, character in zip(told, drawn, strict=True) if share is not None)
    assert [character for _, character in known] == sorted(character for _, character in known)


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0.0, "0.00%"), (1e-6, "<0.01%"), (0.3333, "33.33%"), (0.999999, ">99.99%"), (1.0, "100.00%")],
)
def test_percentages(share: float | None, text: str) -> None:
    assert percentage(share) == text


@pytest.mark.parametrize(
    ("late_by", "latest_ms", "said"),
    [
        ((1, 0, 0, 0, 0), 1, "1 by up to 1m; the latest by 1 ms"),
        ((1200, 2, 3, 4, 5), 90_000_000, "1,200 by up to 1m, 2 by up to 10m, 3 by up to 1h, 4 by up to 1d, 5 by more "
         "than 1d; the latest by 1 d 1 h"),
        ((0, 0, 0, 0, 0), 0, "none"),
    ],
)  # fmt: skip
def test_lateness_is_told_by_its_steps(late_by: Lateness, latest_ms: int, said: str) -> None:
    assert lateness(late_by, latest_ms) == said
