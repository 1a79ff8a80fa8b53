"""Since when records wait, as a driver's beats say it: what a stall without a batch is measured by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.context.results import BatchDone, TaskResults
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.stamp.event_times import EventCounts
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from tests.unit.tables.commit.strategies import ranges

P = TopicPartition("t", 0)


def test_records_wait_since_they_were_first_seen_or_since_the_last_batch_ended() -> None:
    log = WorkLog(0.0)
    log.opened({P: 10})

    def waiting(latest: int, now: float) -> float | None:
        log.lag({P: latest}, now)
        return log.work(now).waiting_since

    assert [waiting(10, 100.0), waiting(12, 9000.0), waiting(13, 9010.0)] == [None, 9000.0, 9000.0]
    log.done(
        BatchDone(
            *(0, Counts(read=2), 1.0, 0.5, 0.1, {P: 1}, None),
            events=EventCounts(5, 9, late=(1, 0, 0, 2, 0), latest_ms=80_000_000),
        ),
        {P: 12},
        9020.0,
        snapshot_id=1,
        dead_letter_snapshot_id=None,
        refusals=0,
    )
    assert log.work(9020.0).waiting_since == 9020.0
    log.done(
        BatchDone(
            *(1, Counts(read=1), 1.0, 0.5, 0.1, {P: 0}, None),
            events=EventCounts(nulls=1, late=(1, 0, 0, 0, 0), latest_ms=3),
        ),
        {P: 13},
        9030.0,
        snapshot_id=1,
        dead_letter_snapshot_id=None,
        refusals=0,
    )
    assert log.work(9030.0).waiting_since is None
    work = log.work(9030.0)
    assert (work.late, work.late_by, work.latest_ms) == (4, (2, 0, 0, 2, 0), 80_000_000)
    assert work.event_ms == (5, 9), "of the newest batch that has any"
    assert waiting(13, 9040.0) is None


TABLE, OTHER = TargetSpec("a.t", "rows", True), TargetSpec("a.u", "rows")
DEAD = TargetSpec("a.t_dead", "dead_letters")
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
BATCH = {P0: OffsetRange(10, 30), P1: OffsetRange(5, 5), P2: OffsetRange(0, 4)}
# Two slices of one partition; the dead letters had it up to 10, the table up to 20.
RESULTS = TaskResults(
    {},
    [
        Tally("t", 0, read=4, landed=3, tombstones=1, rows={TABLE.name: 3, DEAD.name: 2}),
        Tally("t", 0, read=6, landed=4, dead=2, rows={TABLE.name: 4, DEAD.name: 3, OTHER.name: 1}),
    ],
)


def test_parts_are_of_partitions_that_the_target_lacks() -> None:
    assert RESULTS.parts(BATCH, {P0: 20, P2: 4}, TABLE) == {P0: PartitionCounts(20, Counts(10, 7, 2, 1))}
    assert RESULTS.parts(BATCH, {P0: 10, P2: 4}, DEAD) == {P0: PartitionCounts(10, Counts(read=5, dead=5))}
    assert RESULTS.parts(BATCH, {P0: 10, P2: 4}, OTHER) == {P0: PartitionCounts(10, Counts(read=1, landed=1))}
    # A range without a record, between transaction markers: it was read all the same.
    assert RESULTS.parts(BATCH, {P0: 30}, TABLE) == {P2: PartitionCounts(0, Counts())}


@given(ranges(), st.dictionaries(st.builds(TopicPartition, st.just("t"), st.integers(0, 3)), st.integers(0, 12)))
def test_parts_name_exactly_what_is_past_the_position(
    batch: dict[TopicPartition, OffsetRange], position: dict[TopicPartition, int]
) -> None:
    parts = TaskResults({}, []).parts(batch, position, TABLE)
    assert set(parts) == {p for p, (start, end) in batch.items() if max(start, position.get(p, start)) < end}
    for partition, part in parts.items():
        assert part.stood == max(batch[partition].start, position.get(partition, 0))
