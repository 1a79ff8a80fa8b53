"""Base rows: the rows of a mirror's base stand among the changes of their keys, for those that are gone.

A base's row has all that was there after the change whose order it has. It stands behind that change, as one more: of a
column that a change before it has, since the key's last insert or delete, it says nothing, for such a change may have
come after the base was made. All else that is not in the changes is what it says.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirror.declared_types import as_declared
from jobs.mirror.fold import OP_COLUMN, RESETS, UNAVAILABLE_COLUMN, first_of_keys, last_where, rows_by_unavailable
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.sorted_rows import sorted_rows

BASE_COLUMN = "_change_base"
"""Of an ordered change: whether it is the row of a base."""


@dataclass(frozen=True, slots=True)
class AmongBaseRows:
    """Puts base rows where they belong among the changes of their keys; can be pickled.

    Attributes:
        key, columns: Names; the key's are among the row's.
        prepared: What is done before with the changes alone.
        types: By name, those of columns that have parts, as the changes have them without a base.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    prepared: Callable[[pa.Table], pa.Table]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The changes and base rows in their order.

        Args:
            rows: Changes as `fold` takes them, and base rows with `_change_base` true: one of a key at most, with the
                operation u or d, the whole row and its order.
        """
        together = self._together(rows)
        for name, kind in self.types.items():
            at, values = together.schema.get_field_index(name), as_declared(together[name], kind)
            together = together.set_column(at, together.schema.field(at).with_type(values.type), values)
        return together

    def _together(self, rows: pa.Table) -> pa.Table:
        changes = self.prepared(rows.filter(pc.invert(rows[BASE_COLUMN])))
        based = rows.filter(rows[BASE_COLUMN])
        if not based.num_rows:
            return changes
        together = self._in_order([changes.cast(rows.schema), based])
        said = self._said_before(together)
        if not said:
            return together
        based = together.filter(together[BASE_COLUMN])
        lists = _lists(said, based.num_rows)
        at = based.schema.get_field_index(UNAVAILABLE_COLUMN)
        kind = based.schema.field(at)
        based = based.set_column(at, kind, lists.cast(kind.type))
        changes = together.filter(pc.invert(together[BASE_COLUMN]))
        return self._in_order([changes, based])

    def _in_order(self, parts: Sequence[pa.Table]) -> pa.Table:
        return sorted_rows(pa.concat_tables(parts), (*self.key, ORDER_COLUMN, BASE_COLUMN)).combine_chunks()

    def _said_before(self, rows: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
        """By column for which base rows a change before has its value, of those that some change lacks."""
        listed = rows_by_unavailable(rows[UNAVAILABLE_COLUMN])
        is_base = _mask(rows[BASE_COLUMN])
        places = np.flatnonzero(is_base)
        starts = np.maximum.accumulate(np.where(first_of_keys(rows, self.key), np.arange(rows.num_rows), 0))[places]
        deleted = _mask(pc.equal(rows[OP_COLUMN], "d"))
        reset = last_where(_mask(pc.is_in(rows[OP_COLUMN], pa.array(RESETS))) & ~is_base, places, starts)
        said: dict[str, np.ndarray[Any, Any]] = {}
        for name in self.columns:
            if name not in listed or name in self.key:
                continue
            there = ~(deleted | is_base)
            there[listed[name]] = False
            source = last_where(there, places, starts)
            mask = (source >= 0) & (source >= reset) & ~deleted[places]
            if mask.any():
                said[name] = mask
        return said


def _lists(said: dict[str, np.ndarray[Any, Any]], rows: int) -> pa.Array:
    """A list of names for each row."""
    names = [*said]
    found: list[list[str] | None] = [None] * rows
    for name in names:
        for row in np.flatnonzero(said[name]).tolist():
            found[row] = [*(found[row] or ()), name]
    return pa.array(found, pa.list_(pa.string()))


def _mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return values.to_numpy(zero_copy_only=False).astype(bool)
