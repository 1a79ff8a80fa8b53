"""Differences between two schemas: that of rows, as records or a stream's file give them, and that of their table.

A difference says what is, by path, and which change of the table would end it; `jobs.schema.renames` looks for columns
that may have been renamed among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.schema.compatibility import holds, widened_type
from jobs.schema.iceberg_schema import schema_text
from jobs.schema.needs import Need, Path

DifferenceKind: TypeAlias = Literal[
    "added", "gone", "widened", "narrowed", "other_type", "now_required", "now_optional", "case"
]
"""Of a field of the rows: the table has no such column; the rows lack a column; its type is wider, narrower, another;
it is required where the column accepts null, or the other way round; the table's name differs by case only."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, at one path. A field may have two: in its type, and in whether it is required.

    Attributes:
        kind: What differs.
        path: Of the field in the rows, or of the column that they lack; what lies below it is added or gone with it.
        rows: The field as the rows have it; None if it is gone.
        table: The column; None if it is added.
        needs: The change of the table that ends it; None where none is needed, or where none may be made.
        fits: Whether the table takes every value of the rows as it is, losing nothing.
    """

    kind: DifferenceKind
    path: Path
    rows: ice.NestedField | None
    table: ice.NestedField | None
    needs: Need | None = None
    fits: bool = True

    @property
    def column(self) -> str:
        """The path as Iceberg writes it: `payer.name`, `items.element.sku`."""
        return ".".join(self.path)

    def __str__(self) -> str:
        return f"{self.column}: {_sentence(self)}"


def differences(rows: Schema, table: Schema, *, own: Collection[str] = ()) -> list[Difference]:
    """What differs between the rows of a stream and its table.

    Args:
        rows: The columns that records give.
        table: The table's.
        own: Columns of the table that frazil fills itself, such as `_kafka_offset`, which no record has.

    Returns:
        In the order of the rows' fields, each struct's missing columns behind them; empty if they are the same. The
        order of columns, their ids and their docs are no difference.
    """
    columns = [column for column in table.fields if column.name not in own]
    return list(_of_structs(rows.fields, columns, ()))


def _of_structs(
    fields: Collection[ice.NestedField], columns: Collection[ice.NestedField], at: Path
) -> Iterator[Difference]:
    by_name = {column.name: column for column in columns}
    by_case = {column.name.casefold(): column for column in columns}
    for field in fields:
        path = (*at, field.name)
        if (column := by_name.get(field.name)) is not None:
            yield from _of_fields(field, column, path)
        elif (other := by_case.get(field.name.casefold())) is not None:
            yield Difference("case", path, field, other, None, fits=False)
        else:
            yield Difference("added", path, field, None, Need("add", path, field.field_type), fits=False)
    given = {field.name.casefold() for field in fields}
    for column in columns:
        if column.name.casefold() not in given:
            path = (*at, column.name)
            relax = Need("relax", path) if column.required else None
            yield Difference("gone", path, None, column, relax, fits=not column.required)


def _of_fields(field: ice.NestedField, column: ice.NestedField, path: Path) -> Iterator[Difference]:
    if field.required and not column.required:
        yield Difference("now_required", path, field, column)
    elif column.required and not field.required:
        # Of a map's key, and of what a partition rests on, the policy has the last word.
        yield Difference("now_optional", path, field, column, Need("relax", path), fits=False)
    match field.field_type, column.field_type:
        case ice.StructType() as inner, ice.StructType() as outer:
            yield from _of_structs(inner.fields, outer.fields, path)
        case ice.ListType() as inner, ice.ListType() as outer:
            yield from _of_fields(inner.element_field, outer.element_field, (*path, "element"))
        case ice.MapType() as inner, ice.MapType() as outer:
            yield from _of_fields(inner.key_field, outer.key_field, (*path, "key"))
            yield from _of_fields(inner.value_field, outer.value_field, (*path, "value"))
        case inner, outer if inner != outer:
            yield _of_types(field, column, path)
        case _:
            return


def _of_types(field: ice.NestedField, column: ice.NestedField, path: Path) -> Difference:
    if not (field.field_type.is_primitive and column.field_type.is_primitive):
        return Difference("other_type", path, field, column, None, fits=False)
    if holds(field.field_type, column.field_type):
        return Difference("narrowed", path, field, column)
    wider = widened_type(field.field_type, column.field_type)
    # Iceberg compares the keys of a map as they were written.
    if wider is None or path[-1:] == ("key",):
        return Difference("other_type", path, field, column, None, fits=False)
    return Difference("widened", path, field, column, Need("widen", path, wider), fits=False)


def _sentence(difference: Difference) -> str:
    rows, table = difference.rows, difference.table
    said: Mapping[DifferenceKind, str] = {
        "added": f"{_type(rows)} is not in the table",
        "gone": f"{_type(table)} of the table is not among the fields",
        "widened": f"{_type(rows)} is wider than the table's {_type(table)}",
        "narrowed": f"{_type(rows)} fits in the table's {_type(table)}",
        "other_type": f"{_type(rows)} is another type than the table's {_type(table)}",
        "now_required": "is always there; the table accepts null",
        "now_optional": "may be null or missing; the table requires it",
        "case": f"the table calls it {table.name if table else ''}: names differ by case only",
    }
    return said[difference.kind]


def _type(field: ice.NestedField | None) -> str:
    return schema_text(field.field_type) if field else ""
