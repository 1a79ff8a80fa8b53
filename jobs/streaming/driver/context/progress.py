"""Progress of a driver for its heartbeat: its work so far, and what the present batch waits for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from jobs.streaming.supervision.documents.heartbeat import Flush, Recent, Work
from jobs.tables.commit.stamp.lateness import summed_lateness
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition, by_topic

if TYPE_CHECKING:
    from jobs.streaming.driver.context.results import BatchDone

RECENT_SECONDS = 300.0
MOST_UNKNOWN_FIELDS = 20
"""Most unknown fields in each heartbeat; the state store has more of them."""
# Longer than a usual garbage collection of the JVM.
UNANSWERED_SECONDS = 20.0
# A request that is answered sooner is merely slow.
LONG_SECONDS = 10.0

NONE_PARKED: Mapping[str, int] = MappingProxyType({})


class WorkLog:
    """Work of one driver so far; written by the threads of batches and lag, read by the heartbeat thread.

    Args:
        since: Start of the driver; all times here are in seconds since 1970.
        unanswered_seconds: Longest time that a JVM may take to answer.
    """

    def __init__(self, since: float, unanswered_seconds: float = UNANSWERED_SECONDS) -> None:
        self._unanswered_seconds: float = unanswered_seconds
        self._since: float = since
        self._guard: threading.Lock = threading.Lock()
        self._work: Work = Work()
        self._position: dict[TopicPartition, int] = {}
        self._reasons: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self._refused_before: int = 0
        self._asked: tuple[float, float] | None = None
        self._complete: float | None = None
        self._recent: deque[tuple[float, int, int, int]] = deque()

    def opened(self, position: Positions, recovered: int = 0, parked: Mapping[str, int] = NONE_PARKED) -> None:
        """The stream was opened at this position; refusals are counted from 0 again.

        Args:
            recovered: Batches that were committed from pending records during the opening.
            parked: Suspended tables and their times, milliseconds since 1970.
        """
        with self._guard:
            self._position = dict(position)
            self._refused_before = self._work.refusals
            recovered += self._work.recovered
            self._work = msgspec.structs.replace(
                self._work, position=by_topic(position), recovered=recovered, parked=dict(parked)
            )
            # An operator's answer may have moved the stream back since.
            self._complete = None

    def begun(self, now: float) -> int | None:
        """A batch began.

        Returns:
            Time through which the stream is complete, by all that was known since it was opened; milliseconds since
            1970. A stream at the end of its topics does not become less complete because more records arrive.
        """
        with self._guard:
            self._work = msgspec.structs.replace(self._work, busy_since=now)
            return None if self._complete is None else int(self._complete * 1000)

    def made_progress(self, now: float) -> None:
        """Something in the present batch has progressed."""
        with self._guard:
            self._work = msgspec.structs.replace(self._work, got_on_at=now)

    def jvm_asked(self, now: float) -> None:
        """The JVM got a request."""
        with self._guard:
            self._asked = (now, time.monotonic())

    def jvm_answered(self) -> None:
        """The JVM has answered, or no longer exists."""
        with self._guard:
            self._asked = None

    def idle(self) -> None:
        """No batch is running: the query ended, whatever became of its last batch."""
        with self._guard:
            self._work = msgspec.structs.replace(self._work, busy_since=None)

    def done(
        self,
        batch: BatchDone,
        end: Positions,
        now: float,
        *,
        snapshot_id: int | None,
        dead_letter_snapshot_id: int | None,
        refusals: int,
    ) -> None:
        """A batch ended, and the stream's position is `end`; `refusals` are those since the stream was opened."""
        with self._guard:
            work, counts, events = self._work, batch.counts, batch.events
            self._position = dict(end)
            for reason, count in batch.reasons.items():
                self._reasons[reason] = self._reasons.get(reason, 0) + count
            for path, met in batch.unknown_fields.items():
                if path in self._unknown or len(self._unknown) < MOST_UNKNOWN_FIELDS:
                    self._unknown[path] = self._unknown.get(path, 0) + met.records
            if counts.read:
                self._recent.append((now, counts.read, counts.landed, counts.dead))
                work = msgspec.structs.replace(
                    work,
                    batch=batch.batch,
                    batches=work.batches + 1,
                    last_commit_seconds=batch.commit_seconds,
                    last_batch_seconds=batch.seconds,
                    last_commit_at=now,
                )
            if batch.lag:
                work = msgspec.structs.replace(
                    work,
                    lag=by_topic(batch.lag),
                    lag_at=now,
                    lag_unknown_since=None,
                    undecided=by_topic(batch.undecided),
                    undecided_since=work.undecided_since if batch.undecided else None,
                )
            self._work = msgspec.structs.replace(
                work,
                busy_since=None,
                read=work.read + counts.read,
                landed=work.landed + counts.landed,
                dead=work.dead + counts.dead,
                tombstones=work.tombstones + counts.tombstones,
                filtered=work.filtered + counts.filtered,
                commit_seconds=work.commit_seconds + batch.commit_seconds,
                batch_seconds=work.batch_seconds + batch.seconds,
                refusals=self._refused_before + refusals,
                position=by_topic(end),
                waiting_since=now if any((batch.lag or {}).values()) else None,
                snapshot_id=snapshot_id,
                dead_letter_snapshot_id=dead_letter_snapshot_id,
                valid_through_ms=batch.valid_through_ms or work.valid_through_ms,
                reasons=dict(self._reasons),
                unknown_fields=dict(self._unknown),
                watermark_ms=batch.watermark_ms if batch.watermark_ms is not None else work.watermark_ms,
                late=work.late + events.late_records,
                late_by=summed_lateness(work.late_by, events.late),
                latest_ms=max(work.latest_ms, events.latest_ms),
                event_ms=events.span_ms or work.event_ms,
                warned=dict(Counter(work.warned) + Counter(batch.warned)),
                parked_letters=dict(Counter(work.parked_letters) + Counter(batch.parked)),
            )
            self._note_complete()

    def watermark(self, watermark_ms: int | None) -> None:
        """The watermark of the newest stamp, at opening or after it has moved on without a batch."""
        with self._guard:
            self._work = msgspec.structs.replace(self._work, watermark_ms=watermark_ms)

    def flushing(self, flush: Flush) -> None:
        """Progress of the newest flush."""
        with self._guard:
            self._work = msgspec.structs.replace(self._work, flush=flush)

    def position(self) -> dict[TopicPartition, int]:
        """Position of the stream."""
        with self._guard:
            return dict(self._position)

    def lag(
        self, latest: Positions, now: float, undecided: Positions | None = None, undecided_since: float | None = None
    ) -> None:
        """Kafka reported the ends of the logs.

        Args:
            latest: Ends of the logs; with read_committed, the ends of decided transactions.
            now: Time of the request.
            undecided: Offsets behind these ends, of partitions with any.
            undecided_since: Time since which the longest-waiting of these ends has not moved.
        """
        with self._guard:
            waiting = {at: max(0, latest[at] - offset) for at, offset in self._position.items() if at in latest}
            since = self._work.waiting_since
            self._work = msgspec.structs.replace(
                self._work,
                lag=by_topic(waiting),
                lag_at=now,
                lag_unknown_since=None,
                waiting_since=(now if since is None else since) if any(waiting.values()) else None,
                undecided=by_topic(undecided or {}),
                undecided_since=undecided_since,
            )
            self._note_complete()

    def lag_unknown(self, since: float) -> None:
        """The ends of the logs cannot be queried; the time of the first such report stays until they can."""
        with self._guard:
            if self._work.lag_unknown_since is None:
                self._work = msgspec.structs.replace(self._work, lag_unknown_since=since)

    def _note_complete(self) -> None:
        known = [each for each in (self._complete, self._work.complete_through) if each is not None]
        self._complete = max(known, default=None)

    def work(self, now: float) -> Work:
        """The whole work, with recent rates as of now."""
        with self._guard:
            while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
                self._recent.popleft()
            recent = Recent(
                seconds=max(0.0, min(RECENT_SECONDS, now - self._since)),
                read=sum(read for _, read, _, _ in self._recent),
                landed=sum(landed for _, _, landed, _ in self._recent),
                dead=sum(dead for _, _, _, dead in self._recent),
            )
            asked = self._asked
            silent = asked is not None and time.monotonic() - asked[1] > self._unanswered_seconds
            unanswered = asked[0] if asked is not None and silent else None
            return msgspec.structs.replace(self._work, recent=recent, unanswered_since=unanswered)


class BatchWaits:
    """What a batch waits for; written by the threads that land it, read by the driver's main thread."""

    def __init__(self, long_seconds: float = LONG_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._long_seconds: float = long_seconds
        self._clock: Callable[[], float] = clock
        self._guard: threading.Lock = threading.Lock()
        self._asked: dict[object, tuple[str, float, datetime]] = {}
        self._failure: tuple[str, datetime] | None = None

    @contextlib.contextmanager
    def asking(self, whom: str) -> Iterator[None]:
        """Within the block a service is asked that may take long; several threads may ask at the same time."""
        asked = object()
        with self._guard:
            self._asked[asked] = whom, self._clock(), datetime.now(UTC)
        try:
            yield
        finally:
            with self._guard:
                del self._asked[asked]

    def retrying(self, failure: str | None) -> None:
        """Something failed and is retried; None once it has worked. The time of the first failure stays."""
        with self._guard:
            since = self._failure[1] if self._failure else datetime.now(UTC)
            self._failure = (failure, since) if failure is not None else None

    def message(self) -> str | None:
        """What the batch waits for, as a sentence without values and secrets; None if nothing, or not for long yet."""
        with self._guard:
            # In the order of the requests.
            whom, asked, since = next(iter(self._asked.values()), ("", self._clock(), datetime.now(UTC)))
            if self._asked and self._clock() - asked >= self._long_seconds:
                return f"{whom} has not answered since {since:%H:%M:%S} UTC"
            return f"{self._failure[0]} (since {self._failure[1]:%H:%M:%S} UTC)" if self._failure else None
