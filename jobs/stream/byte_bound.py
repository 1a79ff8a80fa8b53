"""Byte bound of a stream's batches: how many records a batch may read, by the sizes of those that came last."""

from __future__ import annotations

from collections import deque

from jobs.spec.source import Source

FIRST_BYTES = 1024 * 1024
"""How large a record is taken to be before any was seen: as large as brokers take them unless they are told."""

BATCHES = 8
"""By the largest mean of so many batches a record's size is judged."""

_FACTOR = 2


class ByteBound:
    """Turns `source.max_bytes_per_batch` into records, which is what Spark bounds batches by.

    What a batch reads is planned before any of it is seen, and is what Spark has noted then, also where it is run
    again. So what is seen in one batch bounds the ones after it.

    Args:
        source: Of the stream's file.
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
