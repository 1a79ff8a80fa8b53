"""Plan to conform rows of a writer schema to a stream's columns: what fills each column, made once for the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.conform_values import Conversion, conversion
from jobs.records.formats.json_texts import json_texts
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.compatibility import holds, promotes
from jobs.records.schema.iceberg_schema import (
    JsonText,
    Presence,
    column_text,
    column_type,
)
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.records.schema.needs import Need, Path


@dataclass(frozen=True, slots=True)
class Same:
    """The column takes the values as they are."""


@dataclass(frozen=True, slots=True)
class Convert:
    """The column takes values of its kind, each converted if it stays the same.

    Attributes:
        widened: The type with which the column would hold them all; None if it holds them, or never will.
    """

    apply: Conversion
    widened: ice.IcebergType | None


@dataclass(frozen=True, slots=True)
class Clash:
    """The column never holds the values.

    Attributes:
        former: The field's name, if the column was made for a message without fields and has this name as a former
            name; a column of its own would take the values.
    """

    writer: ice.IcebergType
    column: ice.IcebergType
    former: str | None = None

    @property
    def got_fields(self) -> bool:
        """Return whether the column may belong to a Protobuf message that had no fields before."""
        return isinstance(self.column, ice.BooleanType) and isinstance(self.writer, ice.StructType)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The way in which a column is filled.

    Attributes:
        column: The column.
        index: Index of the writer's field; None if it has none.
        refuses_null: Whether the column is required, and the writer's field may be null.
        node: How values are converted to the column's.
        several: Plans of the writer's fields for the column, if there are more than one: a record may have a value in
            one of them. `index` is None then.
        names: Names of those fields.
    """

    column: ice.NestedField
    index: int | None
    refuses_null: bool
    node: Node
    several: tuple[ColumnPlan, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StructPlan:
    """The way in which the columns of a struct, or of the rows, are filled.

    Attributes:
        extra: The writer's fields that no column takes, by their index, with types that tables have.
    """

    columns: tuple[ColumnPlan, ...]
    extra: tuple[tuple[int, ice.NestedField], ...]


@dataclass(frozen=True, slots=True)
class ListPlan:
    """The way in which elements of a list become those of the column."""

    element: ColumnPlan


@dataclass(frozen=True, slots=True)
class MapPlan:
    """The way in which keys and values of a map become those of the column."""

    key: ColumnPlan
    value: ColumnPlan


Node: TypeAlias = Same | Convert | Clash | StructPlan | ListPlan | MapPlan

SAME = Same()


def struct_plan(
    writer: ice.StructType, columns: ice.StructType, names: NameRule = EXACT_NAMES, path: Path = ()
) -> StructPlan:
    """Plan how rows, or structs, of the writer's fields fill columns.

    Args:
        writer: The fields.
        columns: The columns.
        names: How fields and columns are matched.
        path: Path of the columns' struct.
    """
    matching = names.of_struct(path, [each.name for each in columns.fields])
    at: dict[str, list[int]] = {}
    extra: list[tuple[int, ice.NestedField]] = []
    for index, each in enumerate(writer.fields):
        if (column := matching.column(each.name)) is None:
            # The type that a column for the field would have; a message without fields is kept as true.
            extra.append((index, each.model_copy(update={"field_type": _plain(each.field_type)})))
        else:
            at.setdefault(column, []).append(index)
    plans = (_of_fields(writer, each, at.get(each.name, []), names, (*path, each.name)) for each in columns.fields)
    return StructPlan(tuple(plans), tuple(extra))


def _of_fields(
    writer: ice.StructType, column: ice.NestedField, at: Sequence[int], names: NameRule, path: Path
) -> ColumnPlan:
    """Plan how the writer's fields at these indices fill a column."""
    plans = tuple(_column_plan(writer.fields[index], column, names, path, index) for index in at)
    match plans:
        case ():
            return ColumnPlan(column, None, column.required, SAME)
        case (plan,):
            return plan
        case _:
            refuses_null = all(plan.refuses_null for plan in plans)
            several = tuple(replace(plan, refuses_null=False) for plan in plans)
            return ColumnPlan(column, None, refuses_null, SAME, several, tuple(writer.fields[i].name for i in at))


def _column_plan(
    writer: ice.NestedField, column: ice.NestedField, names: NameRule, path: Path, index: int = 0
) -> ColumnPlan:
    node = _node(writer.field_type, column.field_type, names, path)
    if isinstance(node, Clash) and node.got_fields and writer.name.casefold() != column.name.casefold():
        node = replace(node, former=writer.name)
    return ColumnPlan(column, index, column.required and not writer.required, node)


def _node(writer: ice.IcebergType, column: ice.IcebergType, names: NameRule, path: Path) -> Node:
    if isinstance(column, JsonText):
        if isinstance(writer, JsonText):
            return SAME
        return Convert(lambda values: (pa.array(json_texts(values, writer), pa.binary()).cast(pa.string()), []), None)
    # Nested types are equal only with equal names, order and nullability; a uuid and sixteen bytes are equal, too.
    if rows_arrow_type(writer) == rows_arrow_type(column) and not _has_json(column):
        return SAME
    match writer, column:
        case ice.StructType(), ice.StructType():
            return struct_plan(writer, column, names, path)
        case ice.ListType(), ice.ListType():
            return ListPlan(_column_plan(writer.element_field, column.element_field, names, (*path, "element")))
        case ice.MapType(), ice.MapType():
            key = _column_plan(writer.key_field, column.key_field, names, (*path, "key"))
            return MapPlan(key, _column_plan(writer.value_field, column.value_field, names, (*path, "value")))
        case Presence(), ice.StructType() if not any(each.required for each in column.fields):
            return Convert(lambda values: (_without_fields(values, column), []), None)
        case _:
            apply = conversion(writer, column)
            if apply is None:
                return Clash(writer, column)
            return Convert(apply, writer if promotes(column, writer) and not holds(writer, column) else None)


def _without_fields(values: pa.Array, column: ice.StructType) -> pa.Array:
    """Return structs whose fields are null, where a message without fields exists."""
    kind = rows_arrow_type(column)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    nulls = [pa.nulls(len(values), each.type) for each in fields]
    return pa.StructArray.from_arrays(nulls, fields=fields, mask=values.is_null())


def _has_json(column: ice.IcebergType) -> bool:
    match column:
        case ice.StructType():
            return any(_has_json(each.field_type) for each in column.fields)
        case ice.ListType():
            return _has_json(column.element_type)
        case ice.MapType():
            return _has_json(column.value_type)
        case _:
            return isinstance(column, JsonText)


def needs(plan: Node, path: Path = ()) -> Iterator[Need]:
    """Yield the changes of the table without which rows lose a field, or may be refused."""
    match plan:
        case StructPlan(columns, extra):
            for _, each in extra:
                yield Need("add", (*path, each.name), each.field_type)
            for each in columns:
                yield from _column_needs(each, (*path, each.column.name))
        case ListPlan(element):
            yield from _column_needs(element, (*path, "element"))
        case MapPlan(key, value):
            # Iceberg's keys are always required, and their types do not change.
            yield from _column_needs(replace(key, refuses_null=False), (*path, "key"))
            yield from _column_needs(value, (*path, "value"))
        case Convert(_, widened) if widened is not None:
            yield Need("widen", path, widened)
        case Clash(writer, former=str() as name):
            yield Need("add", (*path[:-1], name), _plain(writer))
        case _:
            return


def _plain(kind: ice.IcebergType) -> ice.IcebergType:
    """Return a type as tables have it, without JSON texts and messages without fields."""
    return column_type(column_text(kind))


def _column_needs(plan: ColumnPlan, path: Path) -> Iterator[Need]:
    if plan.refuses_null:
        yield Need("relax", path)
    for each in plan.several or (plan,):
        yield from needs(each.node, path)


def arrow_kind(column: ice.NestedField) -> pa.DataType:
    """Return the Arrow type of a column's values."""
    return rows_arrow_type(column.field_type)
