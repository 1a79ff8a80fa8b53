"""Tolerance for failed records: whether a batch has too many, decided by the counts before anything is committed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore
from jobs.config.documents.units import format_duration
from jobs.config.stream.error_handling import (
    DEFAULT_STOP,
    MOST_BY_CHANCE,
    StopAbove,
    exceeds_ratio,
)
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.problems import LATE, UNROUTED
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.task.tally import Example, Tally
from jobs.tables.commit.history.stamp_history import stamped_snapshots
from jobs.tables.commit.stamp.errors import ToleranceError
from jobs.tables.commit.stamp.stamp_fields import Counts

log = logging.getLogger(__name__)


class WindowToleranceError(ToleranceError):
    """More records failed within the window of `errors.stop_above` than it allows.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: correct the producer, `decode.schema` or the limit; then `frazil start S`, which leaves the earlier dead
        letters out of the sum
    """


def check_tolerance(
    spec: StreamSpec, counts: Counts, tallies: Sequence[Tally], earlier: Counts | None = None, *, proved: bool = True
) -> None:
    """Stop the stream if its spec does not allow this many failed records; messages name records by their coordinates.

    Args:
        counts: Counts of the batch; late records among its dead letters do not count.
        earlier: Counts of the earlier batches in the window; None without a window.
        proved: Whether the stream has landed a record before.

    Raises:
        ToleranceError: Names a failed record, or the three most frequent reasons with examples.
    """
    # A late record has not failed: the stream's file says what happens to it.
    late = sum(tally.reasons.get(LATE, 0) for tally in tallies)
    counts = replace(counts, dead=counts.dead - late)
    if not counts.dead:
        return
    batch = {"failed": counts.dead, "read": counts.read}
    if spec.errors.tolerance == "none":
        first = first_failed(tallies)
        raise ToleranceError(
            f"stream {spec.stream} tolerates no failed record, and {counts.dead} of {counts.read} failed; "
            f"{_described(first)}. Nothing of the batch is committed.",
            fix="correct the producer or decode.schema, or set errors.tolerance: data",
            **batch,
        )
    if spec.route is not None and spec.route.unmatched == "fail":
        unrouted = sum(tally.reasons.get(UNROUTED, 0) for tally in tallies)
        if unrouted:
            raise ToleranceError(
                f"stream {spec.stream}: route.unmatched is fail, and no table of the route takes {unrouted} of "
                f"{counts.read} records; {_described(_examples(tallies)[UNROUTED])}. "
                "Nothing of the batch is committed.",
                fix=f"add a table for them to route.tables in streams/{spec.stream}.yaml, or set route.unmatched: "
                "dead_letter",
                **batch,
            )
    unexpected = [tally.unexpected for tally in tallies if tally.unexpected]
    if unexpected and spec.errors.tolerance != "all":
        raise ToleranceError(
            f"stream {spec.stream}: frazil itself fails at a record; {_described(unexpected[0])}. "
            "Nothing of the batch is committed.",
            fix="report the fault with that record, and set errors.tolerance: all to keep it as a dead letter",
            **batch,
        )
    unset = ", or stop_above: off for no limit" if spec.errors.stop_above == DEFAULT_STOP else ""
    for error, sentence, key in _exceeded(spec, counts, earlier or Counts(), proved):
        raise error(
            f"stream {spec.stream}: {sentence}. Nothing of the batch is committed. "
            f"Most frequent in the batch:{_frequent(tallies)}",
            fix=f"correct the producer, or decode.schema in streams/{spec.stream}.yaml, or raise {key} there{unset}; "
            f"then {'frazil start' if spec.continuous else 'frazil run'} {spec.stream}",
            **batch,
        )


def first_failed(tallies: Sequence[Tally]) -> Example:
    """The record that the error of a stream without tolerance names."""
    return min(_examples(tallies).values(), key=lambda example: (example.topic, example.partition, example.offset))


def _exceeded(
    spec: StreamSpec, batch: Counts, earlier: Counts, proved: bool
) -> Iterator[tuple[type[ToleranceError], str, str]]:
    """Exceeded limits: the error, a sentence, and the key to raise."""
    limit = spec.errors.stop_above
    if limit is None:
        return
    first = "" if proved else ", and the stream has landed none before"
    of_batch = f"{batch.dead} of {batch.read} records of a batch failed{first}, more than"
    key = "errors.stop_above"
    enough = limit.min_records if proved else limit.first_min_records or limit.min_records
    if _is_above(limit, limit.ratio, batch, enough):
        yield ToleranceError, f"{of_batch} {key}.ratio = {limit.ratio}", f"{key}.ratio"
    if limit.count is not None and batch.dead > limit.count:
        yield ToleranceError, f"{of_batch} {key}.count = {limit.count}", f"{key}.count"
    if (window := limit.window) is None:
        return
    total = batch + earlier
    of_window = f"{total.dead} of {total.read} records within {format_duration(window.of)} failed, more than"
    if _is_above(limit, window.ratio, total, limit.min_records):
        yield WindowToleranceError, f"{of_window} {key}.window.ratio = {window.ratio}", f"{key}.window.ratio"
    if window.count is not None and total.dead > window.count:
        yield WindowToleranceError, f"{of_window} {key}.window.count = {window.count}", f"{key}.window.count"


def _is_above(limit: StopAbove, ratio: float | None, counts: Counts, enough: int | None) -> bool:
    if ratio is None or (limit.min_records is not None and counts.read < (enough or 0)):
        return False
    return exceeds_ratio(counts.dead, counts.read, ratio, enough or MOST_BY_CHANCE)


def _frequent(tallies: Sequence[Tally]) -> str:
    """The three most frequent reasons, one per line, each with an example."""
    reasons: dict[str, int] = {}
    for tally in tallies:
        for reason, count in tally.reasons.items():
            if reason != LATE:
                reasons[reason] = reasons.get(reason, 0) + count
    examples = _examples(tallies)
    frequent = sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:3]
    return "".join(f"\n  {reasons[reason]} × {reason}: {_described(examples[reason])}" for reason in frequent)


def _examples(tallies: Sequence[Tally]) -> dict[str, Example]:
    examples: dict[str, Example] = {}
    for tally in tallies:
        for reason, example in tally.examples.items():
            if reason != LATE:
                examples.setdefault(reason, example)
    return examples


def _described(example: Example) -> str:
    field = f", field {example.field}" if example.field else ""
    detail = f" ({example.detail})" if example.detail else ""
    needs = f": {example.needs}" if example.needs else ""
    return (
        f"topic {example.topic}, partition {example.partition}, offset {example.offset}: "
        f"{example.error_class} in {example.stage}{detail}{field}{needs}"
    )


_KEY = "window-stop.json"


class WindowStop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Record that the window stopped the stream.

    Attributes:
        sequence: Sequence number of the stream's newest commit on its main table at the time.
        table: Uuid of that table; a recreated table counts its sequence numbers from 1 again.
    """

    sequence: int
    generation: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class _Point:
    """A stamped snapshot: its time (ms), the totals with and without its batch, and its late dead letters."""

    at_ms: int
    totals: Counts
    before: Counts
    late: int


class Breaker:
    """Checks the batches of one open stream. The window is read from the stamps, so it survives every restart.

    The window covers the present batch, and batches whose snapshots are younger than the window. After a stop, earlier
    batches are forgiven if a continuous stream is started again, or if the configuration has changed. A drain under the
    same configuration forgives nothing, as a schedule is no operator.

    Args:
        stream: The stream; the stamps of its coordinator are read at each check.
        now: Returns the time, seconds since 1970.
    """

    def __init__(self, stream: OpenStream, now: Callable[[], float] = time.time) -> None:
        self._stream: OpenStream = stream
        self._now: Callable[[], float] = now
        self._points: deque[_Point] = deque()
        stop = _read(stream.folder.store)
        self._seen: int = stop.sequence if stop is not None and self._forgives(stop) else -1

    def check(self, results: TaskResults) -> None:
        """Stop the stream if too many records failed in the batch, or in the window with it."""
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
        """Counts of the earlier batches in the window; None without a window."""
        limit = self._stream.spec.errors.stop_above
        if limit is None or limit.window is None:
            return None
        self._look()
        begin_ms = self._now() * 1000 - limit.window.of.total_seconds() * 1000
        while self._points and self._points[0].at_ms < begin_ms:
            self._points.popleft()
        # Totals continue over snapshots that have expired in between.
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
        # Without the record the whole window counts: the stream may stop once too often.
        log.warning("%s cannot be read, so the whole window counts: %s", _KEY, problem)
        return None
