"""Filling of a promoted column: rescued values move from the rescued data to their column.

The result is what would have landed if the column had existed from the start: the reference JSON decoder decodes the
rescued text as a record, and what the column does not take stays rescued. A row that cannot be filled stays unchanged.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.maintenance.backfill.promotion import Promotion
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import members_without_column
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.declared import StructType
from jobs.records.schema.needs import Path
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.tables.write.projection import projected

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
HAS_VALUE = "column_has_value"
"""Reason to leave a row: its column has a value already."""
LACKS_REQUIRED = "missing_field"
"""Reason to leave a row: the struct around the column would lack a required field."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class LeftRow:
    """A row whose rescued value does not go to the column.

    Attributes:
        row: Index in its block.
        error_class: Reason: a decoder's, or `HAS_VALUE`.
        field: JSON path of the fault.
    """

    row: int
    error_class: str
    field: str


@dataclass(frozen=True, slots=True)
class Filled:
    """A block of rows with the column filled.

    Attributes:
        rows: All rows of the block, unchanged except for the column and the rescued data.
        moved: Number of changed rows.
        left: Rows with a rescued value that stay unchanged.
    """

    rows: pa.RecordBatch
    moved: int
    left: list[LeftRow] = field(default_factory=list)


class Filling:
    """Fills one column of a table.

    Args:
        promotion: The promoted field.
        schema: Schema of the table, with the column.
    """

    def __init__(self, promotion: Promotion, schema: Schema) -> None:
        self._path: Path = promotion.path
        self._record: StructType = promotion.record
        self._place: str = promotion.place
        self._top: ice.NestedField = schema.find_field(promotion.path[0])
        self._decoder: JsonReferenceDecoder = JsonReferenceDecoder(promotion.record)

    @property
    def columns(self) -> tuple[str, str]:
        """The top-level columns of the table that it reads."""
        return EXTRA_COLUMN, self._top.name

    def fill(self, rows: pa.RecordBatch) -> Filled:
        """Fill the column in a block of rows.

        Args:
            rows: Rows with columns of the table, as its data files have them.
        """
        kept, old = _column(rows, EXTRA_COLUMN), _column(rows, self._top.name)
        if kept is None:
            return Filled(rows, 0)
        touched, texts = self._touched(kept, old)
        if not len(touched):
            return Filled(rows, 0)
        decoded = self._decoder.decode(pa.array(texts, pa.binary()))
        left = [
            LeftRow(int(touched[each.row]), each.error_class, each.field or self._place) for each in decoded.failures
        ]
        # As long as the block: the index of each row's value among the decoded ones, or -1.
        at = np.full(rows.num_rows, -1, np.int64)
        at[touched[decoded.positions]] = np.arange(len(decoded.positions))
        new = _taken(decoded.rows.column(0), at)
        refused = _clashes(old, new, self._top, self._path[1:])
        if refused:
            left += [LeftRow(row, why, self._place) for row, why in refused.items()]
            at[list(refused)] = -1
            new = _taken(decoded.rows.column(0), at)
        moved = np.flatnonzero(at >= 0)
        if not len(moved):
            return Filled(rows, 0, sorted(left, key=lambda each: each.row))
        made = _merged(old, new, self._top, self._path[1:])
        texts_of = dict(zip(touched.tolist(), texts, strict=True))
        rest = pa.array([members_without_column(self._record, texts_of[row]) for row in moved.tolist()], pa.string())
        index = np.arange(rows.num_rows)
        index[moved] = rows.num_rows + np.arange(len(moved))
        rest = pa.concat_arrays([kept.cast(pa.string()), rest]).take(pa.array(index))
        return Filled(
            _with(_with(rows, EXTRA_COLUMN, rest), self._top.name, made),
            len(moved),
            sorted(left, key=lambda each: each.row),
        )

    def _touched(self, kept: pa.Array, old: pa.Array | None) -> tuple[Indices, list[bytes]]:
        """Rows with a rescued value of the column, or of a missing struct around it; and the rescued texts."""
        name = msgspec.json.encode(self._path[0]).decode() + ":"
        candidates = np.flatnonzero(np.asarray(pc.fill_null(pc.match_substring(kept.cast(pa.string()), name), False)))
        absent = self._absent(old, len(kept))
        rows: list[int] = []
        texts: list[bytes] = []
        for row, text in zip(candidates.tolist(), kept.take(pa.array(candidates)).to_pylist(), strict=True):
            token = text.encode()
            if self._has(token, [each[row] for each in absent]):
                rows.append(row)
                texts.append(token)
        return np.array(rows, np.int64), texts

    def _has(self, token: bytes, absent: Sequence[bool]) -> bool:
        found: bytes | msgspec.Raw = token
        for depth, name in enumerate(self._path):
            if bytes(memoryview(found)[:1]) != b"{":
                return False
            members = _members(found)
            if name not in members:
                return False
            if depth < len(absent) and absent[depth]:
                return True
            found = members[name]
        return True

    def _absent(self, old: pa.Array | None, count: int) -> list[Mask]:
        """For each struct around the column, the outermost first, which rows lack it."""
        masks: list[Mask] = []
        for depth in range(len(self._path) - 1):
            if old is None:
                masks.append(np.ones(count, np.bool_))
                continue
            null = np.asarray(old.is_null())
            masks.append(null | masks[-1] if masks else null)
            old = _child(old, self._path[depth + 1])
        return masks


def _clashes(old: pa.Array | None, new: pa.Array, column: ice.NestedField, way: Path) -> dict[int, str]:
    """Rows that cannot be filled, with the reason: they have a value already, or would lack another one.

    Args:
        old: The present column; None if the file lacks it.
        new: The new values; structs on the way to the promoted column have only that way.
        way: Names from here to the promoted column.
    """
    there = np.asarray(new.is_valid())
    has = np.zeros(len(new), np.bool_) if old is None else np.asarray(old.is_valid())
    if not way:
        return dict.fromkeys(np.flatnonzero(there & has).tolist(), HAS_VALUE)
    fields = _fields(column)
    lacking = any(each.required for name, each in fields.items() if name != way[0])
    found = dict.fromkeys(np.flatnonzero(there & ~has).tolist() if lacking else (), LACKS_REQUIRED)
    return found | _clashes(_child(old, way[0]), _child(new, way[0]), fields[way[0]], way[1:])


def _merged(old: pa.Array | None, new: pa.Array, column: ice.NestedField, way: Path) -> pa.Array:
    """The old values, and the new ones where there are none; structs on the way to the column are merged by field."""
    if not way:
        kind = pa.field(column.name, rows_arrow_type(column.field_type))
        fitting = [projected(each, column.field_type, kind, column.name, len(new)) for each in (new, old)]
        if old is None:
            return fitting[0]
        index = np.arange(len(new))
        index[np.asarray(new.is_valid())] += len(new)
        return pa.concat_arrays(fitting[::-1]).take(pa.array(index))
    children: dict[str, pa.Array] = {}
    for name, each in _fields(column).items():
        before = _child(old, name)
        if name == way[0]:
            children[name] = _merged(before, _child(new, name), each, way[1:])
        elif before is not None:
            children[name] = before
    nothing = new.is_null() if old is None else pc.and_(old.is_null(), new.is_null())
    return pa.StructArray.from_arrays(list(children.values()), names=list(children), mask=nothing)


def _fields(column: ice.NestedField) -> dict[str, ice.NestedField]:
    assert isinstance(column.field_type, ice.StructType)
    return {each.name: each for each in column.field_type.fields}


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return rows.column(index) if index >= 0 else None


def _child(values: pa.Array | None, name: str) -> pa.Array | None:
    if values is None:
        return None
    index = values.type.get_field_index(name)
    return values.flatten()[index] if index >= 0 else None


def _with(rows: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    index = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if index < 0 else rows.set_column(index, name, values)


def _taken(values: pa.Array, at: Indices) -> pa.Array:
    return values.take(pa.array(at, mask=at < 0))
