from __future__ import annotations

from typing import Any

import pytest

from jobs.commit.errors import ToleranceError
from jobs.commit.stamp_fields import Counts
from jobs.spec.models import StreamSpec
from jobs.stream.tolerance import WindowToleranceError, check_tolerance
from jobs.task.tally import Example, Tally


def spec(route: Any = None, **errors: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string not null"},
            "table": {"name": "orders.payments"},
            "errors": errors,
            "route": route,
        }
    )


def tally(partition: int, **reasons: int) -> Tally:
    examples = {
        reason: Example("payments", partition, 40 + number, "decode_value", reason, f"$.{reason}")
        for number, reason in enumerate(reasons)
    }
    return Tally("payments", partition, dead=sum(reasons.values()), reasons=dict(reasons), examples=examples)


@pytest.mark.parametrize("errors", [{"tolerance": "none"}, {"stop_above": {"ratio": 0.001, "min_records": 1}}, {}])
def test_no_failed_record_never_stops(errors: dict[str, Any]) -> None:
    check_tolerance(spec(**errors), Counts(read=5_000, landed=5_000), [tally(0)])


def test_none_stops_at_the_first_and_names_it() -> None:
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(
            spec(tolerance="none"),
            Counts(read=9, landed=7, dead=2),
            [tally(1, wrong_type=1), tally(0, missing_field=1)],
        )
    text = str(stop.value)
    assert "stream payments tolerates no failed record, and 2 of 9 failed" in text
    assert "topic payments, partition 0, offset 40: missing_field in decode_value, field $.missing_field. " in text
    assert "Nothing of the batch is committed" in text and "Next: " in text


@pytest.mark.parametrize(
    ("least", "read", "dead", "stops"),
    [
        (None, 10_000, 501, True),
        (None, 1_000, 51, True),
        (None, 1_000, 50, False),
        # A batch of a small stream, of which nearly all are bad.
        (None, 580, 500, True),
        # What a source with 5 % bad records gives once in a thousand batches at most stops, and no less.
        (None, 999, 72, False),
        (None, 999, 73, True),
        (None, 100, 13, False),
        (None, 100, 14, True),
        (None, 20, 5, False),
        (None, 20, 6, True),
        (None, 2, 2, False),
        (None, 3, 3, True),
        (600, 580, 500, False),
        (500, 580, 30, True),
    ],
)
def test_the_ratio_counts_where_chance_does_not_explain_it(
    least: int | None, read: int, dead: int, stops: bool
) -> None:
    counts = Counts(read=read, landed=read - dead, dead=dead)
    checked = spec(stop_above={"ratio": 0.05, **({"min_records": least} if least else {})})
    if not stops:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
        return
    with pytest.raises(ToleranceError, match=f"{dead} of {read} records of a batch failed") as stop:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
    assert (stop.value.failed, stop.value.read) == (dead, read)


def test_the_three_most_frequent_reasons_are_named_with_an_example() -> None:
    tallies = [tally(0, wrong_type=5, missing_field=2, bad_date=1), tally(1, wrong_type=1, malformed_json=3)]
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(stop_above={"ratio": 0.5, "min_records": 1}), Counts(read=13, landed=1, dead=12), tallies)
    lines = str(stop.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [
        "6 × wrong_type",
        "3 × malformed_json",
        "2 × missing_field",
    ]
    assert "bad_date" not in str(stop.value)
    assert "partition 1, offset 41" in lines[2]
    assert stop.value.fix is not None
    assert stop.value.fix.endswith("raise errors.stop_above.ratio there; then frazil start payments")


@pytest.mark.parametrize(("dead", "stops"), [(5, False), (6, True)])
def test_a_count_of_a_batch(dead: int, stops: bool) -> None:
    checked, counts = spec(stop_above={"count": 5}), Counts(read=1_000_000, landed=1_000_000 - dead, dead=dead)
    if not stops:
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])
        return
    with pytest.raises(ToleranceError, match=r"6 of 1000000 records of a batch failed, .*stop_above\.count = 5"):
        check_tolerance(checked, counts, [tally(0, wrong_type=dead)])


@pytest.mark.parametrize(
    ("window", "earlier", "stops"),
    [
        ({"count": 10}, Counts(read=50, dead=9), False),
        ({"count": 10}, Counts(read=50, dead=10), True),
        ({"ratio": 0.1}, Counts(read=98, dead=19), False),
        ({"ratio": 0.1}, Counts(read=98, dead=20), True),
        ({"ratio": 0.1}, Counts(read=999, dead=99), False),
        ({"ratio": 0.1}, Counts(read=999, dead=100), True),
        ({"ratio": 0.1}, None, False),
    ],
)
def test_a_window_counts_the_batches_before(window: dict[str, Any], earlier: Counts | None, stops: bool) -> None:
    checked = spec(stop_above={"window": {"of": "90m", **window}})
    if not stops:
        check_tolerance(checked, Counts(read=1, dead=1), [tally(0, wrong_type=1)], earlier)
        return
    with pytest.raises(WindowToleranceError, match="records within 90m failed") as stop:
        check_tolerance(checked, Counts(read=1, dead=1), [tally(0, wrong_type=1)], earlier)
    assert "1 × wrong_type: topic payments, partition 0, offset 40" in str(stop.value)


def test_a_fault_of_frazil_s_own_needs_tolerance_all() -> None:
    unexpected = Example("payments", 2, 7, "decode_value", "unexpected_error", None, "KeyError at leaves.py:5")
    broken = Tally(
        "payments", 2, dead=1, reasons={"unexpected_error": 1}, examples={"unexpected_error": unexpected},
        unexpected=unexpected,
    )  # fmt: skip
    check_tolerance(spec(tolerance="all"), Counts(read=5, dead=1), [broken])
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(), Counts(read=5, dead=1), [tally(0, wrong_type=1), broken])
    text = str(stop.value)
    assert "frazil itself fails at a record; topic payments, partition 2, offset 7" in text
    assert "unexpected_error in decode_value (KeyError at leaves.py:5)" in text
    assert "tolerance: all" in text


@pytest.mark.parametrize("off", ["off", False, None])
def test_without_a_breaker_any_number_is_kept_as_dead_letters(off: object) -> None:
    for proved in (True, False):
        check_tolerance(
            spec(stop_above=off), Counts(read=10_000, dead=10_000), [tally(0, wrong_type=10_000)], proved=proved
        )


@pytest.mark.parametrize(
    ("proved", "read", "dead", "stops"),
    [
        (True, 9, 9, False),
        (True, 10, 10, True),
        (True, 100, 65, False),
        (True, 100, 66, True),
        (True, 1_000, 500, False),
        (True, 1_000, 501, True),
        (True, 1_000_000, 50_000, False),
        (False, 9, 9, False),
        (False, 19, 19, True),
        (False, 20, 10, False),
        (False, 20, 11, True),
        (False, 3_201, 3_201, True),
    ],
)
def test_without_a_word_in_the_file_more_bad_than_good_records_stop(
    proved: bool, read: int, dead: int, stops: bool
) -> None:
    counts = Counts(read=read, landed=read - dead, dead=dead)
    if not stops:
        check_tolerance(spec(), counts, [tally(0, wrong_type=dead)], proved=proved)
        return
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(spec(), counts, [tally(0, wrong_type=dead)], proved=proved)
    assert f"{dead} of {read} records of a batch failed" in stop.value.message
    assert ("the stream has landed none before" in stop.value.message) is not proved
    assert stop.value.fix is not None
    assert "stop_above: off for no limit" in stop.value.fix


@pytest.mark.parametrize("limit", [{"count": 5_000}, {"ratio": 0.9}, {"window": {"of": "1h", "count": 5_000}}])
def test_a_limit_that_the_file_sets_is_the_only_one(limit: dict[str, Any]) -> None:
    counts = Counts(read=1_000, landed=200, dead=800)
    for proved in (True, False):
        check_tolerance(spec(stop_above=limit), counts, [tally(0, wrong_type=800)], Counts(), proved=proved)


def test_a_stop_says_what_was_needed() -> None:
    example = Example("payments", 0, 0, "decode_value", "wrong_type", "$.n", needs="needs int, found a string")
    failed = Tally("payments", 0, dead=30, reasons={"wrong_type": 30}, examples={"wrong_type": example})
    with pytest.raises(ToleranceError, match=r"wrong_type in decode_value, field \$\.n: needs int, found a string"):
        check_tolerance(spec(), Counts(read=30, dead=30), [failed], proved=False)


def test_a_record_that_no_table_takes_stops_a_stream_whose_route_says_so() -> None:
    route = {"by": "id", "tables": [{"match": "a", "table": "orders.a"}]}
    counts = Counts(read=9, landed=7, dead=2)
    letters = [tally(1, wrong_type=1), tally(0, unrouted=1)]
    for unmatched in ("dead_letter", "drop"):
        check_tolerance(spec(route={**route, "unmatched": unmatched}), counts, letters)
    stopping = spec(route={**route, "unmatched": "fail"})
    check_tolerance(stopping, counts, letters[:1])
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(stopping, counts, letters)
    text = str(stop.value)
    assert "route.unmatched is fail, and no table of the route takes 1 of 9 records" in text
    assert "topic payments, partition 0, offset 40: unrouted" in text and "route.tables" in text
