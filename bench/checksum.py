"""A checksum over rows that does not depend on their order, nor on the files that they stand in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_ODD = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_NULL = 0xA0761D6478BD642F


@dataclass(frozen=True, slots=True)
class Checksum:
    """Number of rows, and the sum of their hashes modulo 2^64.

    A lost, duplicated or changed row changes the checksum, and so do values that are swapped between rows.
    """

    rows: int = 0
    sum: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, (self.sum + other.sum) & _MASK)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.sum:016x}"


def checksum(batches: Iterable[pa.RecordBatch]) -> Checksum:
    """Over all rows and columns; columns are taken in the order of their names."""
    total = Checksum()
    for batch in batches:
        hashes = np.zeros(batch.num_rows, np.uint64)
        for name in sorted(batch.schema.names):
            hashes = _mixed(hashes + _column(batch.column(name)))
        total += Checksum(batch.num_rows, int(hashes.sum(dtype=np.uint64)))
    return total


def _column(array: pa.Array) -> Hashes:
    """A hash for each value; for values of one width their bytes, for others their text."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    if pa.types.is_integer(array.type):
        numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        hashes = _mixed(numbers.view(np.uint64) + np.uint64(1))
    else:
        hashes = _texts(array.cast(pa.large_string()).fill_null(""))
    missing = array.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, np.uint64(_NULL), hashes)


def _texts(array: pa.LargeStringArray) -> Hashes:
    """A polynomial over each text's bytes, wherever in the column it stands."""
    if not len(array):
        return np.zeros(0, np.uint64)
    _, places, bytes_ = array.buffers()
    offsets = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    data = np.frombuffer(bytes_ or b"", np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    powers = np.cumprod(np.full(int(lengths.max()), _ODD, np.uint64), dtype=np.uint64)
    terms = data * powers[np.arange(data.size) - np.repeat(starts, lengths)]
    # The sums wrap around, and so do their differences.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return _mixed((sums[starts + lengths] - sums[starts]) ^ lengths.astype(np.uint64))


def _mixed(hashes: Hashes) -> Hashes:
    """Mix hashes so that each input bit affects each output bit (splitmix64)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))
