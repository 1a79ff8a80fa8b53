"""Column changes of failed JSON records: the wider types and the optional columns with which they would land.

A failed record is decoded once more by the widest columns that its stream's policy and its table allow. If it lands
there, its values show which of these changes it needs. The reference decoder decides what a record means in both cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.interface.decoder import Decoded, Failure, ValueDecoder
from jobs.records.formats.interface.problems import MISSING_FIELD, NULL_IN_REQUIRED, OUT_OF_RANGE
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.needs import (
    Change,
    EvolutionPolicy,
    Need,
    Path,
)

CHANGE_BY_CLASS: Mapping[str, Change] = {MISSING_FIELD: "relax", NULL_IN_REQUIRED: "relax", OUT_OF_RANGE: "widen"}
"""The change of a column that may let a record of this error class land."""

_MOST_DIGITS = 38
_MOST_DECODERS = 16
_INT = 2**31
_INDEX = re.compile(r"\[(\d+|\.\.\.)\]")


class ColumnChanges:
    """Finds the changes of columns that failed records need.

    Args:
        declared: The columns.
        policy: The action for each kind of change.
        refused: Changes that the table refuses.
        reference: Makes the reference decoder of other columns.
    """

    def __init__(
        self,
        declared: StructType,
        policy: EvolutionPolicy,
        refused: Collection[tuple[Change, Path]],
        reference: Callable[[StructType], ValueDecoder],
    ) -> None:
        self._declared: StructType = declared
        self._policy: EvolutionPolicy = policy
        self._refused: Collection[tuple[Change, Path]] = refused
        self._reference: Callable[[StructType], ValueDecoder] = reference
        self._decoders: dict[StructType, ValueDecoder] = {}
        self._possible: frozenset[tuple[Change, Path]] = frozenset(
            (each.change, each.path) for each in self._allowed(declared)
        )

    def needed(self, records: Mapping[int, bytes], failures: Collection[Failure]) -> dict[int, list[Need]]:
        """Return the changes that failed records need to land, by row, for those that some change lets land.

        Args:
            records: Records by row, with the names of columns.
            failures: Failures of these records.
        """
        rows = [each.row for each in failures if self.may_help(each)]
        if not rows:
            return {}
        wide = self.decode(self.widest(self._declared), [records[row] for row in rows])
        found = needs_of_rows(self._declared, wide.rows)
        landed = {rows[at]: found.get(index, []) for index, at in enumerate(wide.positions.tolist())}
        return {row: [each.at(row) for each in needs] for row, needs in landed.items()}

    def may_help(self, failure: Failure) -> bool:
        """Return whether a change of the failure's column may let the record land."""
        change, column = CHANGE_BY_CLASS.get(failure.error_class), column_at(self._declared, failure.field)
        return change is not None and column is not None and (change, column.path) in self._possible

    def widest(self, columns: StructType) -> StructType:
        """Return the columns with each change made that the policy and the table allow."""
        return changed_columns(columns, list(self._allowed(columns)))

    def decode(self, columns: StructType, records: list[bytes]) -> Decoded:
        """Decode records by other columns, with the reference decoder."""
        if columns not in self._decoders:
            recent = dict(list(self._decoders.items())[1 - _MOST_DECODERS :])
            self._decoders = {**recent, columns: self._reference(columns)}
        return self._decoders[columns].decode(pa.array(records, pa.binary()))

    def _allowed(self, columns: StructType) -> Iterator[Need]:
        for each in _possible_changes(columns, ()):
            if self._policy.answer(each.change) != "ignore" and (each.change, each.path) not in self._refused:
                yield each


class ColumnAt(NamedTuple):
    """The column of a failure.

    Attributes:
        path: Its path.
        tokens: Place of its value in the record: names, indices in lists, None for some value of a map.
    """

    path: Path
    tokens: tuple[str | int | None, ...]


def column_at(declared: StructType, place: str | None) -> ColumnAt | None:
    """Return the column at a failure's JSON path such as `$.a.b[2]`; None if no column has it."""
    if place is None or not place.startswith("$"):
        return None
    return next(_columns_at(declared, place[1:], ColumnAt((), ())), None)


def _columns_at(declared: DeclaredType, rest: str, above: ColumnAt) -> Iterator[ColumnAt]:
    if not rest:
        yield above
        return
    match declared:
        case StructType(fields):
            # A name may have points in it, and may be the beginning of another name.
            for field in sorted(fields, key=lambda each: -len(each.name)):
                if rest.startswith("." + field.name):
                    column = ColumnAt((*above.path, field.name), (*above.tokens, field.name))
                    yield from _columns_at(field.type, rest[len(field.name) + 1 :], column)
        case ListType(element):
            if index := _INDEX.match(rest):
                at = int(index[1]) if index[1] != "..." else None
                column = ColumnAt((*above.path, "element"), (*above.tokens, at))
                yield from _columns_at(element, rest[index.end() :], column)
        case MapType(_, value):
            if index := _INDEX.match(rest):
                column = ColumnAt((*above.path, "value"), (*above.tokens, None))
                yield from _columns_at(value, rest[index.end() :], column)
        case _:
            return


def _possible_changes(column_type: DeclaredType, path: Path) -> Iterator[Need]:
    """Yield each change that could be made within a column, to the widest type."""
    match column_type:
        case StructType(fields):
            parts = [(each.name, each.type, each.required) for each in fields]
        case ListType(element, required):
            parts = [("element", element, required)]
        case MapType(_, value, required):
            parts = [("value", value, required)]
        case Primitive("int"):
            yield Need("widen", path, ice.LongType())
            return
        case Primitive("float"):
            yield Need("widen", path, ice.DoubleType())
            return
        case Primitive("decimal", scale=int() as scale):
            yield Need("widen", path, ice.DecimalType(_MOST_DIGITS, scale))
            return
        case _:
            return
    for name, inner, required in parts:
        if required:
            yield Need("relax", (*path, name))
        yield from _possible_changes(inner, (*path, name))


def changed_columns(declared: StructType, changes: Collection[Need]) -> StructType:
    """Return the columns with the changes; of several types for one column it gets the widest."""
    wider: dict[Path, ice.IcebergType] = {}
    for each in changes:
        if each.type is not None and _digits(each.type) >= _digits(wider.get(each.path)):
            wider[each.path] = each.type
    relaxed = {each.path for each in changes if each.change == "relax"}
    return StructType(tuple(_changed_field(each, (each.name,), wider, relaxed) for each in declared.fields))


def _digits(column_type: ice.IcebergType | None) -> int:
    return column_type.precision if isinstance(column_type, ice.DecimalType) else 0


def _changed_field(field: Field, path: Path, wider: Mapping[Path, ice.IcebergType], relaxed: set[Path]) -> Field:
    def within(name: str, inner: DeclaredType, required: bool) -> Field:
        return _changed_field(Field(name, inner, required), (*path, name), wider, relaxed)

    column_type: DeclaredType = field.type
    match column_type:
        case StructType(fields):
            column_type = StructType(tuple(within(each.name, each.type, each.required) for each in fields))
        case ListType(element, required):
            inner = within("element", element, required)
            column_type = ListType(inner.type, inner.required)
        case MapType(_, value, required):
            inner = within("value", value, required)
            column_type = replace(column_type, value=inner.type, value_required=inner.required)
        case Primitive():
            # The JSON encoding of the value stays as it is.
            match wider.get(path):
                case ice.DecimalType(precision=precision):
                    column_type = replace(column_type, precision=precision)
                case ice.LongType() | ice.DoubleType() as wide:
                    column_type = replace(column_type, name=str(wide))
                case _:
                    pass
    return Field(field.name, column_type, field.required and path not in relaxed)


def needs_of_rows(declared: StructType, rows: pa.RecordBatch) -> dict[int, list[Need]]:
    """Return the changes that rows of wider columns need to land in the present columns, by the rows' indices."""
    found: dict[int, list[Need]] = {}
    owners = np.arange(rows.num_rows)
    for field in declared.fields:
        _gather(field.type, field.required, rows.column(field.name), owners, (field.name,), found)
    return found


def _gather(
    column_type: DeclaredType,
    required: bool,
    values: pa.Array,
    owners: np.ndarray,
    path: Path,
    found: dict[int, list[Need]],
) -> None:
    """Note what the values of a column need; `owners` has the row of each value."""
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        if required:
            _note(Need("relax", path), owners[~present], found)
        values, owners = values.filter(pa.array(present)), owners[present]
    match column_type:
        case StructType(fields):
            for index, each in enumerate(fields):
                _gather(each.type, each.required, values.field(index), owners, (*path, each.name), found)
        case ListType(element, inner_required):
            inner, within = _parts(values, values.values, owners)
            _gather(element, inner_required, inner, within, (*path, "element"), found)
        case MapType(_, value, inner_required):
            inner, within = _parts(values, values.items, owners)
            _gather(value, inner_required, inner, within, (*path, "value"), found)
        case Primitive("int") if pa.types.is_int64(values.type):
            numbers = values.to_numpy()
            _note(Need("widen", path, ice.LongType()), owners[(numbers < -_INT) | (numbers >= _INT)], found)
        case Primitive("float") if pa.types.is_float64(values.type):
            numbers = values.to_numpy()
            with np.errstate(over="ignore"):
                beyond = np.isinf(numbers.astype(np.float32)) & np.isfinite(numbers)
            _note(Need("widen", path, ice.DoubleType()), owners[beyond], found)
        case Primitive("decimal", int() as precision, int() as scale):
            digits = np.fromiter(map(_digits_before_point, values.to_pylist()), np.int64, len(values)) + scale
            for wider in set(digits[digits > precision].tolist()):
                _note(Need("widen", path, ice.DecimalType(wider, scale)), owners[digits == wider], found)
        case _:
            return


def _digits_before_point(number: Decimal) -> int:
    return max(number.adjusted() + 1, 0) if number else 0


def _parts(values: pa.Array, inner: pa.Array, owners: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Return the elements or entries that exist, with the row of each."""
    offsets = values.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    return inner.slice(first, last - first), np.repeat(owners, np.diff(offsets))


def _note(need: Need, rows: np.ndarray, found: dict[int, list[Need]]) -> None:
    # A list may have several values that need the same.
    for row in np.unique(rows).tolist():
        found.setdefault(row, []).append(need)
