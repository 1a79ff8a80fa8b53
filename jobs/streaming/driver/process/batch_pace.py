"""Pace of a stream's batches: the most records of each, and the pause before the next one."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

from jobs.config.services.trigger import Every
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.streaming.driver.context.results import BatchDone

FIRST_BYTES = 1024 * 1024
"""Assumed size of a record before any was seen: the largest that brokers accept by default."""

BATCHES = 8
"""Number of batches whose largest mean size counts as a record's size."""

_FACTOR = 2


class ByteBound:
    """Converts `source.max_bytes_per_batch` to records, by which Spark bounds batches.

    A batch is planned before any of it is read, and Spark repeats the same plan when it runs the batch again. So the
    size of one batch bounds the batches after it.
    """

    def __init__(self, source: Source) -> None:
        self._bytes: int | None = source.max_bytes_per_batch
        self._most: int = source.max_records_per_batch
        # Bytes per record, rounded up, of each of the last batches with records.
        self._means: deque[int] = deque(maxlen=BATCHES)

    def seen(self, records: int, size: int) -> None:
        """Note the size of a batch.

        Args:
            records: Number of records that its tasks have read.
            size: Their bytes.
        """
        if records > 0:
            self._means.append(max(1, -(-size // records)))

    def records(self) -> int:
        """Most records of the next batch."""
        if self._bytes is None:
            return self._most
        return max(1, min(self._most, self._bytes // max(self._means, default=FIRST_BYTES)))

    def outgrown(self, bound: int) -> bool:
        """Whether a query with this bound should give way to one with another: they differ by more than a factor."""
        wanted = self.records()
        return wanted > _FACTOR * bound or bound > _FACTOR * wanted


# Pause between polls of a query without new records; Spark's own 10 ms would keep a core busy.
_IDLE_POLL = timedelta(milliseconds=500)


def pause_after(
    spec: StreamSpec,
    done: BatchDone,
    took: float,
    between: float = 0.0,
    full: int | None = None,
    *,
    red: bool = False,
) -> float:
    """Seconds to wait after a batch before the next one may begin.

    0 if the next batch is full already, or if this one read nothing, so that there is nothing to wait for.

    Args:
        took: Seconds since the batch began.
        between: Least time that Spark needs from the end of the pause to the next batch, seconds.
        full: Most records of the next batch; None: as in the stream's file.
        red: Whether the table's health is red.
    """
    if not isinstance(spec.trigger, Every) or not done.counts.read:
        return 0.0
    if sum(done.lag.values()) >= (full or spec.source.max_records_per_batch):
        return 0.0
    every = (red and spec.trigger.while_red) or spec.trigger.every
    return max(0.0, every.total_seconds() - took - between)


def poll_delay(spec: StreamSpec) -> timedelta:
    """Pause between polls of a query that has nothing to read."""
    return min(_IDLE_POLL, spec.trigger.every) if isinstance(spec.trigger, Every) else _IDLE_POLL / 5
