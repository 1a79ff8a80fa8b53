"""Changelog of a source: the row's columns, and behind them the columns that describe its change.

Every envelope gives the same columns. Facts that an envelope lacks are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    optional,
    renamed,
)
from jobs.records.transforms.transform import Rows

PREFIX = "_change_"
OP = "_change_op"
AT = "_change_at"
POSITION = "_change_position"
LINEAGE = "_change_lineage"
TRANSACTION = "_change_transaction"
UNAVAILABLE = "_change_unavailable"
KEY = "_change_key"
OLD_KEY = "_change_old_key"
BEFORE = "_change_before"

CREATE, READ, UPDATE, DELETE, TRUNCATE = "c", "r", "u", "d", "t"
OPS = (CREATE, UPDATE, DELETE, READ, TRUNCATE)
"""Operations of a change: create, update or delete a row, read it for a snapshot, or empty its table."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of a changelog.

    Attributes:
        row: Columns of the source's row.
        beside: Other columns of the record, such as headers.
        key: The struct of the record's key; None if no row has it.
        before: The fields of the row before the change, if it is kept.
    """

    row: tuple[ice.NestedField, ...]
    beside: tuple[ice.NestedField, ...] = ()
    key: ice.StructType | None = None
    before: tuple[ice.NestedField, ...] | None = None

    @property
    def columns(self) -> Columns:
        """Return all columns, in the table's order.

        Raises:
            TransformProblem: The source has a column with a name of the changelog's own, or two have one name.
        """
        for each in self.row:
            if each.name.casefold().startswith(PREFIX):
                said = f"the source has a column '{each.name}', and names with {PREFIX} are the changelog's own"
                raise TransformProblem(f"{said}: let the connector leave it out or rename it")
        text = ice.StringType()
        own = [
            column(OP, text, required=True),
            column(AT, ice.TimestamptzType()),
            column(POSITION, text),
            column(LINEAGE, text),
            column(TRANSACTION, text),
            column(UNAVAILABLE, ice.ListType(1, text, element_required=False)),
        ]
        if self.key is not None:
            own += [column(KEY, self.key), column(OLD_KEY, self.key)]
        if self.before is not None:
            own.append(column(BEFORE, ice.StructType(*map(optional, self.before))))
        return Columns.of((*map(optional, self.row), *self.beside, *own))


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of rows, with an array for each column; None if it is unknown for all of them.

    Attributes:
        row: The columns of the row, in the order of `Shape.row`.
        beside: The columns of `Shape.beside`.
        op: One of `OPS`.
        at: Time of the change, as `timestamptz`.
        position: Position in the source, as text that sorts as the source orders its changes.
        lineage: Source timeline within which positions are compared.
        transaction: The source's transaction.
        unavailable: Names of columns that the source did not send.
        key: The record's key, a struct.
        old_key: The record's key before a change of the key, a struct.
        before: The row before the change.
    """

    row: Sequence[pa.Array]
    op: pa.Array
    beside: Sequence[pa.Array] = ()
    at: pa.Array | None = None
    position: pa.Array | None = None
    lineage: pa.Array | None = None
    transaction: pa.Array | None = None
    unavailable: pa.Array | None = None
    key: pa.Array | None = None
    old_key: pa.Array | None = None
    before: pa.Array | None = None

    def rows(self, rows: Rows, into: Columns) -> Rows:
        """Return the rows of the changelog.

        Args:
            rows: Rows that the changes were read from.
            into: The columns of their shape.
        """
        own = (self.op, self.at, self.position, self.lineage, self.transaction, self.unavailable)
        arrays: list[pa.Array | None] = [*self.row, *self.beside, *own]
        names = into.names
        for name, array in ((KEY, self.key), (OLD_KEY, self.old_key), (BEFORE, self.before)):
            if name in names:
                arrays.append(array)
        kinds = into.arrow.types
        made = [_as(each, kind, rows.count) for each, kind in zip(arrays, kinds, strict=True)]
        return Rows(into, pa.RecordBatch.from_arrays(made, schema=into.arrow), rows.frame)


def key_struct(columns: Columns, name: str | None) -> ice.StructType | None:
    """Return the struct of records' keys among decoded columns; None without one.

    Args:
        columns: Decoded columns.
        name: Name in the row for a key that is a single value; None for a key with fields.

    Raises:
        TransformProblem: A key that is a single value has no name, or one with fields has one.
    """
    found = next((each for each in columns if each.name == KEY), None)
    if found is None:
        if name is not None:
            raise TransformProblem(f"names the column of a key, and decode.key puts none into {KEY}", ("key",))
        return None
    if isinstance(found.field_type, ice.StructType):
        if name is not None:
            raise TransformProblem("is for a key that is a single value; this one has fields of its own", ("key",))
        return found.field_type
    if name is None:
        kind = schema_text(found.field_type)
        said = f"the record's key is a single value, {kind}: say which column of the row it is"
        raise TransformProblem(f"{said}, such as key: id", ("key",))
    return ice.StructType(optional(renamed(found, name)))


def key_values(rows: Rows, kind: pa.DataType | None) -> pa.Array | None:
    """Return the records' keys as structs; None if there are none.

    Args:
        rows: Decoded rows.
        kind: The type of the structs.
    """
    if kind is None:
        return None
    found = rows.batch.column(rows.columns.index(KEY))
    if pa.types.is_struct(found.type):
        return found
    mask = found.is_null() if found.null_count else None
    return pa.StructArray.from_arrays([found], fields=list(kind), mask=mask)


def _as(array: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    if array is None:
        return pa.nulls(count, kind)
    return array if array.type.equals(kind) else array.cast(kind)
