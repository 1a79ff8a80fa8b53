"""The facts of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_parts import Counts
from jobs.runtime.drain import Drained, Progress
from jobs.runtime.task_results import BatchDone
from orchestration.run_report import Meter, run_facts


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
        meter.take(Progress(each, drained.counts, 300))
    drained.positions = {TopicPartition("t", 0): 300}
    drained.lag = {TopicPartition("t", 0): 7}
    return run_facts(drained, meter)


def test_the_steady_part_leaves_out_all_up_to_the_first_commit() -> None:
    batches = [
        batch(0, Counts(100, 98, 1, 1), reasons={"wrong_type": 1}, unknown_fields={"$.x": 3}),
        batch(1, Counts(100, 100), unknown_fields={"$.x": 4}),
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
    assert (facts["commit_seconds"], facts["commit_share"]) == (1.5, 0.075)
    assert facts["position"] == {"t": {"0": 300}}
    assert facts["lag"] == 7


def test_one_batch_has_no_steady_part() -> None:
    assert measured([batch(0, Counts(100, 100))], [0, 15, 16], [1.0, 2.0, 3.0])["steady"] is None


def test_no_record_is_no_division_by_zero() -> None:
    facts = measured([], [0, 0], [None, None])
    assert facts["whole"]["records_per_second"] is None
    assert facts["whole"]["cpu_seconds"] is None


def test_counts_that_do_not_add_up_are_told() -> None:
    assert measured([batch(0, Counts(100, 98, 1))], [0, 1, 2], [1.0, 2.0, 3.0])["adds_up"] is False
