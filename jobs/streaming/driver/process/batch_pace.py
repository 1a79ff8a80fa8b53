"""Pace of a stream's batches: how many records each may read, and the pause before the next one."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

from jobs.config.services.trigger import Every
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.streaming.driver.context.results import BatchDone

FIRST_BYTES = 1024 * 1024
"""How large a record is taken to be before any was seen: as large as brokers take them unless they are told."""

BATCHES = 8
"""By the largest mean of so many batches a record's size is judged."""

_FACTOR = 2


class ByteBound:
    """Turns `source.max_bytes_per_batch` into records, which is what Spark bounds batches by.

    What a batch reads is planned before any of it is seen, and is what Spark has noted then, also where it is run
    again. So what is seen in one batch bounds the ones after it.
    """

    def __init__(self, source: Source) -> None:
        self._bytes: int | None = source.max_bytes_per_batch
        self._most: int = source.max_records_per_batch
        # Of each of the last batches with records: bytes per record, rounded up.
        self._means: deque[int] = deque(maxlen=BATCHES)

    def seen(self, records: int, size: int) -> None:
        """Take note of a batch.

        Args:
            records: That its tasks have read.
            size: Their bytes.
        """
        if records > 0:
            self._means.append(max(1, -(-size // records)))

    def records(self) -> int:
        """The most that the next batch may read."""
        if self._bytes is None:
            return self._most
        return max(1, min(self._most, self._bytes // max(self._means, default=FIRST_BYTES)))

    def outgrown(self, bound: int) -> bool:
        """Whether a query that reads so many at most has to give way to one with another bound: by more than twice."""
        wanted = self.records()
        return wanted > _FACTOR * bound or bound > _FACTOR * wanted


# How often a query without records to read asks Kafka for new ones; Spark's own 10 ms would keep a core busy.
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

    None if the next one is full already, or if this one did nothing: what was in before costs no waiting.

    Args:
        took: Seconds since it began.
        between: What Spark needs at least from the end of the pause to the next batch, seconds.
        full: The most records that the next one reads; None: as the file says.
        red: Whether the table is.
    """
    if not isinstance(spec.trigger, Every) or not done.counts.read:
        return 0.0
    if sum(done.lag.values()) >= (full or spec.source.max_records_per_batch):
        return 0.0
    every = (red and spec.trigger.while_red) or spec.trigger.every
    return max(0.0, every.total_seconds() - took - between)


def poll_delay(spec: StreamSpec) -> timedelta:
    """How often a query that has nothing to read asks Kafka."""
    return min(_IDLE_POLL, spec.trigger.every) if isinstance(spec.trigger, Every) else _IDLE_POLL / 5
