"""Since when records wait, as a driver's beats say it: what a stall without a batch is measured by."""

from __future__ import annotations

from jobs.commit.event_times import EventCounts
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_fields import Counts
from jobs.stream.progress import WorkLog
from jobs.stream.results import BatchDone

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
