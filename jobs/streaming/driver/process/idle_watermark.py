"""Idle watermark: moves a stream's watermark forward while no records arrive, by an occasional empty snapshot."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.stream.event_time import EventTime
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.streaming.driver.batch.watermark import advanced, known_times
from jobs.streaming.driver.context.completeness import ObservedEnds
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.progress import WorkLog
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.stamps import Stamp

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
SHORTEST_STEP_MS = 300_000
"""Least time between such snapshots of a quiet table, beside one at the end of each hour or day."""


class IdleWatermark:
    """Checks between two batches whether the watermark has to be moved forward, and stamps it.

    Later batches judge records by stamped watermarks only. The stamp is a claim that keeps everything else.

    Args:
        event_time: Event time in the stream's file; without it nothing is ever done.
        work: Gets the watermark.
    """

    def __init__(
        self,
        stream: OpenStream,
        event_time: EventTime | None,
        kafka: KafkaLog,
        work: WorkLog,
        pause_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._stream: OpenStream = stream
        self._event_time: EventTime | None = event_time
        self._kafka: KafkaLog = kafka
        self._work: WorkLog = work
        self._pause_seconds: float = pause_seconds
        self._next: float = 0.0
        if event_time:
            work.watermark(stream.watermark_ms)

    def look(self) -> None:
        """Move the watermark forward if it is due; asks Kafka only if it may be."""
        if self._event_time is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._pause_seconds
        newest = self._stream.anchor.newest
        if newest is None:
            return
        try:
            self._move_on(self._event_time, newest)
        except Exception as problem:
            # Nobody waits for the watermark. The next batch reports the fault, and waits.
            if not is_unavailable(problem):
                raise
            said = problem.message if isinstance(problem, FrazilError) else type(problem).__name__
            log.warning("the watermark of a quiet stream is not moved on: %s", said)

    def _move_on(self, event_time: EventTime, newest: Stamp) -> None:
        stream, before = self._stream, known_times(newest, event_time)
        end = {**stream.begin.offsets, **stream.positions[stream.anchor.name]}
        now_ms = time.time_ns() // 1_000_000

        def after(logs: ObservedEnds, through_ms: int | None) -> EventTimes:
            # The bound of the previous batch stays.
            return replace(advanced(before, event_time, {}, end, logs, through_ms), bound_ms=before.bound_ms)

        if not is_worth_a_stamp(before, after(ObservedEnds(now_ms, end), now_ms), event_time):
            return
        logs = ObservedEnds(now_ms, self._kafka.ends(end).watermarks)
        through_ms = max(now_ms, newest.valid_through_ms or 0) if logs.reached(end) else newest.valid_through_ms
        times = after(logs, through_ms)
        if not is_worth_a_stamp(before, times, event_time):
            return
        stream.lease.verify()
        step("idle_before_stamp")
        stream.anchor.claim(
            stream.epoch,
            lambda newest: replace(stream.claim_of(newest), event_time=times, valid_through_ms=through_ms),
            again=True,
        )
        step("idle_after_stamp")
        self._work.watermark(stream.watermark_ms)


def is_worth_a_stamp(before: EventTimes, after: EventTimes, event_time: EventTime) -> bool:
    """Whether the watermark moves far enough for a snapshot, or past the end of an hour or a day."""
    old, new = before.watermark_ms, after.watermark_ms
    if new is None or old is None:
        return new is not None
    return new - old >= max(event_time.idle_ms, SHORTEST_STEP_MS) or event_time.start_of(new) != event_time.start_of(
        old
    )
