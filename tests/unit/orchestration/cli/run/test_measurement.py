"""The facts of a run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.context.unknown_fields import UnknownField
from jobs.streaming.driver.process.drain import Drained, DrainProgress
from jobs.streaming.task.tally import Cause, Example
from jobs.tables.commit.stamp.event_times import EventCounts
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.cli.streams.run.measurement import (
    Meter,
    landed_nothing,
    print_summary,
    run_facts,
)


def batch(number: int, counts: Counts, **more: Any) -> BatchDone:
    return BatchDone(number, counts, 5.0, 4.0, 0.5, {}, None, **more)


def measured(batches: list[BatchDone], times: list[float], cpu: list[float | None]) -> dict[str, Any]:
    clock: Iterator[float] = iter(times)
    used: Iterator[float | None] = iter(cpu)
    meter = Meter(clock=lambda: next(clock), cpu=lambda: next(used))
    drained = Drained("payments", 4, seconds=20.0)
    for each in batches:
        drained.counts += each.counts
        drained.batches.append(each)
        meter.sample(DrainProgress(each, drained.counts, 300))
    drained.positions = {TopicPartition("t", 0): 300}
    drained.lag = {TopicPartition("t", 0): 7}
    return run_facts(drained, meter)


def test_the_steady_part_leaves_out_all_up_to_the_first_commit() -> None:
    met = UnknownField(3, "t", 1, 7, "$", "x long")
    batches = [
        batch(0, Counts(100, 98, 1, 1), reasons={"wrong_type": 1}, unknown_fields={"$.x": met}),
        batch(1, Counts(100, 100), unknown_fields={"$.x": UnknownField(4, "t", 0, 2)}),
        batch(2, Counts(100, 97, 3), reasons={"wrong_type": 1, "bad_date": 2}),
    ]
    facts = measured(batches, [0, 15, 17, 20, 21], [10.0, 30.0, 32.0, 35.0, 36.0])
    assert facts["records"] == {"read": 300, "landed": 295, "dead": 4, "tombstones": 1, "filtered": 0}
    assert facts["adds_up"] is True
    assert facts["whole"] == {
        "records": 300,
        "seconds": 21,
        "cpu_seconds": 26.0,
        "records_per_second": 14,
        "records_per_cpu_second": 12,
    }
    assert facts["steady"] == {
        "records": 200,
        "seconds": 5,
        "cpu_seconds": 5.0,
        "records_per_second": 40,
        "records_per_cpu_second": 40,
    }
    assert facts["dead_letters"] == {"wrong_type": 2, "bad_date": 2}
    assert facts["unknown_fields"] == {"$.x": 7}
    assert facts["unknown_field_examples"] == {
        "$.x": {"topic": "t", "partition": 1, "offset": 7, "within": "$", "column": "x long"}
    }
    assert (facts["commit_seconds"], facts["commit_share"]) == (1.5, 0.075)
    assert facts["position"] == {"t": {"0": 300}}
    assert facts["lag"] == 7


def failed(count: int, offset: int, field: str = "$.b", needs: str | None = None) -> Cause:
    return Cause(Example("t", 1, offset, "decode_value", "wrong_type", field, needs=needs), count)


def test_the_three_most_frequent_causes_of_all_batches_are_told() -> None:
    batches = [
        batch(0, Counts(100, 90, 10), causes={"a": failed(6, 4, "$.a", "needs int, found null"), "b": failed(4, 5)}),
        batch(1, Counts(100, 80, 20), causes={"b": failed(9, 90), "c": failed(8, 91, "$.c"), "d": failed(3, 9, "$.d")}),
    ]
    facts = measured(batches, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert [(cause["records"], cause["field"]) for cause in facts["causes"]] == [(13, "$.b"), (8, "$.c"), (6, "$.a")]
    assert facts["causes"][0]["example"] == {"topic": "t", "partition": 1, "offset": 5}
    told = io.StringIO()
    print_summary(Console(file=told, width=200), facts)
    lines = [line.strip() for line in told.getvalue().splitlines()]
    assert lines[-4:] == [
        "13 × wrong_type at $.b; such as topic t, partition 1, offset 5",
        "8 × wrong_type at $.c; such as topic t, partition 1, offset 91",
        "6 × wrong_type at $.a: needs int, found null; such as topic t, partition 1, offset 4",
        "Next: frazil letters payments",
    ]


@pytest.mark.parametrize(
    ("counts", "nothing"),
    [
        (Counts(20, 0, 20), True),
        (Counts(19, 0, 19), False),
        (Counts(3_201, 1, 3_200), False),
        (Counts(40, 0, 0, 40), False),
        (Counts(40, 0, 20, 20), True),
        (Counts(), False),
    ],
)
def test_a_run_that_landed_nothing_of_many_is_no_success(counts: Counts, nothing: bool) -> None:
    facts = measured([batch(0, counts)], [0, 1, 2], [1.0, 2.0, 3.0])
    assert landed_nothing(facts) is nothing
    told = io.StringIO()
    print_summary(Console(file=told, width=200), facts)
    assert ("nothing landed; committed in snapshot" in told.getvalue()) is (counts.read > 0 and not counts.landed)


def test_one_batch_has_no_steady_part() -> None:
    assert measured([batch(0, Counts(100, 100))], [0, 15, 16], [1.0, 2.0, 3.0])["steady"] is None


def test_no_record_is_no_division_by_zero() -> None:
    facts = measured([], [0, 0], [None, None])
    assert facts["whole"]["records_per_second"] is None
    assert facts["whole"]["cpu_seconds"] is None


def test_counts_that_do_not_add_up_are_told() -> None:
    assert measured([batch(0, Counts(100, 98, 1))], [0, 1, 2], [1.0, 2.0, 3.0])["adds_up"] is False


def test_late_records_are_told_with_by_how_much() -> None:
    first = EventCounts(late=(2, 0, 1, 0, 0), latest_ms=3_000_000, aside=3)
    second = EventCounts(late=(0, 0, 0, 0, 1), latest_ms=180_000_000, dead=1)
    batches = [batch(0, Counts(10, 10), events=first), batch(1, Counts(5, 4, 1), events=second)]
    facts = measured(batches, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert facts["late"] == {
        "records": 4,
        "by": {"1m": 2, "10m": 0, "1h": 1, "1d": 0, "more": 1},
        "latest_seconds": 180_000.0,
        "dead_letters": 1,
        "in_their_table": 3,
    }
    shown = io.StringIO()
    print_summary(Console(file=shown, width=100), facts)
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    for line in ("late 4", "by up to 1m 2", "by up to 1h 1", "by more than 1d 1", "the latest by 2 d 2 h"):
        assert line in lines, shown.getvalue()
    assert "of them dead letters 1" in lines and "of them in their own table 3" in lines
    assert "by up to 10m 0" not in lines
