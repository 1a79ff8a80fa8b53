"""Circuit breaker of an open stream: judges a batch together with those of the last while, from the stamps."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from jobs.commit.stamp_fields import Counts
from jobs.commit.stamp_history import stamped_snapshots
from jobs.state.documents import DAMAGED
from jobs.state.store import StateStore
from jobs.stream.open_stream import OpenStream
from jobs.stream.results import TaskResults
from jobs.stream.tolerance import WindowToleranceError, check_tolerance
from jobs.system.typed_json import decode_json

log = logging.getLogger(__name__)

_KEY = "window-stop.json"


class WindowStop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the window stopped the stream.

    Attributes:
        sequence: Iceberg's sequence number of the stream's newest commit on its table then.
        generation: The configuration that it stopped under.
        table: The uuid of that table; one that was made anew counts its sequence numbers from 1 again.
    """

    sequence: int
    generation: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class _Point:
    """A stamped snapshot: its time (ms), the totals with and without its batch, and its letters that are only late."""

    at_ms: int
    totals: Counts
    before: Counts
    late: int


class Breaker:
    """Judges the batches of one open stream. The window is read from the stamps, so it survives every restart.

    Counted are the batches whose snapshots are younger than the window, and the batch at hand. Of what the window
    stopped the stream over nothing counts any more once an operator goes on: the batches that were committed by then
    are left out when a continuous stream is started again (nothing but an operator starts it then), and when the
    configuration has changed. A stream that is drained under the same configuration is judged by the whole window
    again: a schedule is no operator.

    Args:
        stream: The stream; its anchor's stamps are read as it stands when a batch is checked.
        now: Seconds since 1970.
    """

    def __init__(self, stream: OpenStream, now: Callable[[], float] = time.time) -> None:
        self._stream: OpenStream = stream
        self._now: Callable[[], float] = now
        self._points: deque[_Point] = deque()
        stop = _read(stream.folder.store)
        self._seen: int = stop.sequence if stop is not None and self._forgives(stop) else -1

    def check(self, results: TaskResults) -> None:
        """Stop the stream if too many records failed in the batch, or in the window with it.

        Raises:
            ToleranceError: They did.
        """
        counts = results.counts()
        try:
            newest = self._stream.anchor.newest
            proved = newest is not None and newest.totals.landed > 0
            earlier = self._earlier() if counts.dead else None
            check_tolerance(self._stream.spec, counts, results.tallies, earlier, proved=proved)
        except WindowToleranceError:
            newest = self._stream.anchor.newest
            stop = WindowStop(newest.sequence if newest else 0, self._stream.generation, self._stream.anchor.uuid)
            self._stream.folder.store.put(_KEY, msgspec.json.encode(stop))
            raise

    def _forgives(self, stop: WindowStop) -> bool:
        stream = self._stream
        goes_on = stream.spec.continuous or stop.generation != stream.generation
        return goes_on and stop.table == stream.anchor.uuid

    def _earlier(self) -> Counts | None:
        """What the batches before the one at hand counted within the window; None without a window."""
        limit = self._stream.spec.errors.stop_above
        if limit is None or limit.window is None:
            return None
        self._look()
        begin_ms = self._now() * 1000 - limit.window.of.total_seconds() * 1000
        while self._points and self._points[0].at_ms < begin_ms:
            self._points.popleft()
        # The totals run on over snapshots that have expired in between.
        if not self._points:
            return Counts()
        late = sum(point.late for point in self._points)
        return self._points[-1].totals - self._points[0].before - Counts(dead=late)

    def _look(self) -> None:
        metadata, stream = self._stream.anchor.table.metadata, self._stream.spec.stream
        for snapshot, stamp in stamped_snapshots(metadata, stream, self._seen):
            late = stamp.event_time.batch.dead if stamp.event_time else 0
            self._points.append(_Point(snapshot.timestamp_ms, stamp.totals, stamp.totals - stamp.counts, late))
            self._seen = snapshot.sequence_number or self._seen


def _read(store: StateStore) -> WindowStop | None:
    try:
        content = store.get(_KEY)
        return None if content is None else decode_json(content, WindowStop)
    except (*DAMAGED, OSError) as problem:
        # Without it the whole window counts: the stream stops rather once too often.
        log.warning("%s cannot be read, so the whole window counts: %s", _KEY, problem)
        return None
