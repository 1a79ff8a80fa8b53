"""Keys of a small merge's changes, and the search for rows that have one of them."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

KEY_TYPES = (
    ice.IntegerType,
    ice.LongType,
    ice.StringType,
    ice.DateType,
    ice.TimestampType,
    ice.TimestamptzType,
    ice.BooleanType,
    ice.BinaryType,
    ice.DecimalType,
)
"""Types of key columns whose values are equal if their bytes are; floats are not among them."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_CHANGE, _ROW = "frazil_change", "frazil_row"
_MARKS_TO_A_KEY = 64
_LEAST_BITS, _MOST_BITS = 16, 22
"""Bits of the table of marks; 2**22 marks take 4 MB, about as much as a CPU's cache."""


class ChangedKeys:
    """Keys of changes: distinct, and without nulls.

    Args:
        keys: Columns of the key, in the mirror's types.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.names: list[str] = keys.column_names
        # Arrow's join reads a name that begins with a dot as a path into a struct, so the columns are numbered.
        self._numbers: list[str] = [str(number) for number in range(keys.num_columns)]
        changes = pa.Table.from_arrays(keys.columns, names=self._numbers)
        self._changes: pa.Table = changes.append_column(_CHANGE, pa.array(np.arange(keys.num_rows)))
        numbers = _as_numbers(keys.column(0).combine_chunks()) if keys.num_columns == 1 else None
        self._sorted: _SortedNumbers | None = None if numbers is None else _SortedNumbers(numbers)

    def met(self, batch: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """Return the indices of a batch's rows that have one of the keys, ascending, and of each row's change."""
        if self._sorted is not None:
            return self._sorted.met(batch.column(self.names[0]))
        rows = pa.Table.from_arrays([batch.column(name) for name in self.names], names=self._numbers)
        rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        # Arrow hashes the right side again for each batch, so the smaller side is the right one.
        left, right = (self._changes, rows) if rows.num_rows < self._changes.num_rows else (rows, self._changes)
        both = left.join(right, self._numbers, join_type="inner", use_threads=False).sort_by(_ROW)
        return both[_ROW].to_numpy(), both[_CHANGE].to_numpy()


class _SortedNumbers:
    """Distinct integers, found by binary search.

    Most rows of a mirror have no change. A table of marks by hash drops them in a fifth of the time of a join.

    Args:
        numbers: Integers in any order.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._order: Numbers = np.argsort(numbers)
        self._sorted: Numbers = numbers[self._order]
        bits = min(_MOST_BITS, max(_LEAST_BITS, (_MARKS_TO_A_KEY * len(numbers)).bit_length()))
        self._shift: int = 64 - bits
        self._marks: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(1 << bits, bool)
        self._marks[self._hashes(numbers)] = True

    def met(self, values: pa.Array) -> tuple[Numbers, Numbers]:
        """Return the indices of values that are among the numbers, ascending, and the index of each one's number."""
        numbers = _as_numbers(values)
        assert numbers is not None, "rows have the types of the keys"
        rows = np.flatnonzero(self._marks[self._hashes(numbers)])
        places = np.searchsorted(self._sorted[:-1], numbers[rows])
        equal = self._sorted[places] == numbers[rows]
        if values.null_count:
            equal &= values.is_valid().to_numpy(zero_copy_only=False)[rows]
        return rows[equal], self._order[places[equal]]

    def _hashes(self, numbers: Numbers) -> np.ndarray[Any, np.dtype[np.uint64]]:
        # Fibonacci hashing: the factor is 2**64 divided by the golden ratio, which spreads successive numbers.
        return (numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(self._shift)


def _as_numbers(values: pa.Array) -> Numbers | None:
    """Return integers, dates or timestamps as 64-bit integers, with 0 for nulls; None for other types."""
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    elif not pa.types.is_integer(values.type):
        return None
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
