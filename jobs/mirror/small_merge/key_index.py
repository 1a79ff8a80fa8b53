"""Key index: of rows of a mirror, which have the key of a change."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_MARKS_TO_A_VALUE = 64
_LEAST_BITS, _MOST_BITS = 16, 22
"""A sieve of 2**22 marks, 4 MB, is about as much as a processor has at hand."""

COMPARED = (
    IntegerType,
    LongType,
    StringType,
    DateType,
    TimestampType,
    TimestamptzType,
    BooleanType,
    BinaryType,
    DecimalType,
)
"""Types of key columns whose values are equal if their bytes are; floating numbers are not among them."""


def is_compared(kind: IcebergType) -> bool:
    """Whether keys with a column of this type are found here."""
    return isinstance(kind, COMPARED)


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Keys of changes, which are all different, and without nulls.

    Attributes:
        key: Names of the key's columns.
        values: By column, its values, each once.
        pairs: From the second column on: numbers of the key so far and of the column's value, as one, each once.
        row: By the number of a key, the row in which it was given.
        sieve: By hashes of the first column's numbers, whether there may be such a key; None where it has no numbers.
    """

    key: tuple[str, ...]
    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...]
    row: Numbers
    sieve: Sieve | None

    @staticmethod
    def of(rows: pa.Table, key: Sequence[str]) -> KeyIndex:
        """The index of the keys of rows."""
        values: list[pa.Array] = []
        pairs: list[pa.Array] = []
        codes: Numbers | None = None
        for name in key:
            column = rows[name].combine_chunks()
            values.append(column.unique())
            own = _codes(column, values[-1])
            if codes is None:
                codes = own
                continue
            paired = pa.array(codes * len(values[-1]) + own)
            pairs.append(paired.unique())
            codes = _codes(paired, pairs[-1])
        assert codes is not None, "a key has a column"
        row = np.empty(len(codes), np.int64)
        row[codes] = np.arange(len(codes))
        return KeyIndex(tuple(key), tuple(values), tuple(pairs), row, Sieve.of(values[0]))

    def met(self, batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """The rows of a batch that have one of the keys, ascending, and for each the row in which it was given.

        Args:
            batch: With the key's columns, of the types of the rows.
        """
        may, among = None, batch
        if self.sieve is not None:
            # Most rows are no change's, and a hash tells that sooner than a look at the keys does.
            may = self.sieve.may_have(batch[self.key[0]])
            among = batch.select([*self.key]).take(pa.array(may))
        codes = self._numbers_of(among)
        there = np.flatnonzero(codes >= 0)
        return (there if may is None else may[there]), self.row[codes[there]]

    def _numbers_of(self, batch: pa.RecordBatch) -> Numbers:
        """For each row of a batch the number of its key; -1 of others."""
        codes = _codes(batch[self.key[0]], self.values[0])
        for name, values, pairs in zip(self.key[1:], self.values[1:], self.pairs, strict=True):
            own = _codes(batch[name], values)
            paired = np.where((codes < 0) | (own < 0), -1, codes * len(values) + own)
            codes = _codes(pa.array(paired), pairs)
        return codes


@dataclass(frozen=True, slots=True)
class Sieve:
    """Says of numbers at once that they are none of some; of a few it does not know.

    Attributes:
        marked: By hash.
        shift: Of the hash's 64 bits so many are dropped.
    """

    marked: np.ndarray[Any, np.dtype[np.bool_]]
    shift: int

    @staticmethod
    def of(values: pa.Array) -> Sieve | None:
        """The sieve of some values without nulls; None if they are no numbers of 64 bits at most."""
        if (numbers := _whole_numbers(values)) is None:
            return None
        bits = min(_MOST_BITS, max(_LEAST_BITS, (_MARKS_TO_A_VALUE * len(values)).bit_length()))
        marked = np.zeros(1 << bits, bool)
        marked[_hashes(numbers, 64 - bits)] = True
        return Sieve(marked, 64 - bits)

    def may_have(self, values: pa.Array) -> Numbers:
        """The places of values that may be among those of the sieve, ascending; also some of others, and of nulls."""
        numbers = _whole_numbers(values)
        assert numbers is not None, "they are of the type of the others"
        return np.flatnonzero(self.marked[_hashes(numbers, self.shift)])


def _hashes(numbers: Numbers, shift: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    # Multiplied by 2**64 over the golden ratio, numbers that follow each other are far apart.
    return (numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)


def _whole_numbers(values: pa.Array) -> Numbers | None:
    """Values as numbers of 64 bits, whatever stands for a null; None if their type has no such."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _codes(values: pa.Array, among: pa.Array) -> Numbers:
    """The place of each value among some; -1 for others, and for nulls."""
    found = pc.fill_null(pc.index_in(values, value_set=among, skip_nulls=True), -1)
    return found.to_numpy(zero_copy_only=False).astype(np.int64)
