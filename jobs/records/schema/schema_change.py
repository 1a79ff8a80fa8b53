"""Schema changes: additions, promotions and relaxed columns as data, and the schema that results from them."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.schema.compatibility import takes_kafka_column
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, KafkaColumns
from jobs.records.schema.needs import (
    Change,
    Coordinates,
    Path,
    column_name,
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's schema. Nothing is ever dropped, renamed, or made narrower.

    Attributes:
        change: `add`, `widen` or `relax`.
        path: Path of the column.
        type: Type of a new column, or the wider one; its ids are arbitrary.
        at: A record that needs it; None if no record does.
        former: For `add`: a column that may be the same under its former name; only shown to people.
        purpose: For `add`: what the column is for; only shown to people.
    """

    change: Change
    path: Path
    type: ice.IcebergType | None = None
    at: Coordinates | None = None
    former: Path | None = None
    purpose: str = ""

    @property
    def sentence(self) -> str:
        """Return the change as a sentence, with its purpose, and the column that it looks like."""
        if self.purpose:
            return f"{self}, which {self.purpose}"
        if self.former is None:
            return str(self)
        return f"{self}, which looks like column {column_name(self.former)} under another name"

    def __str__(self) -> str:
        name = column_name(self.path)
        match self.change:
            case "add":
                return f"add column {name} {schema_text(self.type)}" if self.type else f"add column {name}"
            case "widen":
                return f"widen column {name} to {schema_text(self.type)}" if self.type else f"widen column {name}"
            case "relax":
                return f"let column {name} be null"


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that records need and that is not made.

    Attributes:
        change: `add`, `widen` or `relax`.
        path: Path of the column.
        why: The reason, as the end of a sentence.
        at: A record that needs it.
    """

    change: Change
    path: Path
    why: str
    at: Coordinates

    def __str__(self) -> str:
        return f"{self.change} {column_name(self.path)}: {self.why}"


def kafka_column_changes(table: Schema, kafka: KafkaColumns) -> tuple[tuple[SchemaChange, ...], tuple[str, ...]]:
    """Return the changes that let a table keep the source record of its rows, and what prevents them.

    Args:
        table: The table's schema.
        kafka: The columns of Kafka's own that rows have.

    Returns:
        The missing columns, in their order; and why a column cannot be added or filled, as sentences without a full
        stop.
    """
    columns = {each.name: each.field_type for each in table.fields}
    by_case = {each.name.casefold(): each.name for each in table.fields}
    changes, refused = list[SchemaChange](), list[str]()
    for each in kafka.columns:
        there = columns.get(each.name)
        if there is None and (other := by_case.get(each.name.casefold())):
            refused.append(f"column {each.name} cannot stand beside {other}: names differ by case only")
        elif there is None:
            changes.append(SchemaChange("add", (each.name,), each.type, purpose=each.purpose))
        elif not takes_kafka_column(each.type, there):
            told, needed = schema_text(there), schema_text(each.type)
            said = f"column {each.name} is {told} in the table, where {needed} is needed: name another one in"
            refused.append(f"{said} table.kafka_columns.{each.part}")
    return tuple(changes), tuple(refused)


def changed_schema(
    schema: Schema,
    changes: Sequence[SchemaChange],
    last_column_id: int,
    last: Container[str] = KAFKA_COLUMNS.names,
) -> Schema:
    """Return the schema with the changes; existing columns keep their field ids, new ones are optional.

    New columns come last in their struct; at the table's top they come before those that say where a row came from.

    Args:
        schema: The table's schema.
        changes: Changes whose paths and types fit the schema.
        last_column_id: The greatest field id that the table has ever given.
        last: The names of the columns that say where a row came from.
    """
    made = _Changed(changes, last_column_id, last)
    fields = made.fields_of(schema.as_struct(), ())
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


class _Changed:
    def __init__(self, changes: Sequence[SchemaChange], last_column_id: int, last: Container[str]) -> None:
        self._last: Container[str] = last
        self._ids: Iterator[int] = itertools.count(last_column_id + 1)
        self._relaxed: set[Path] = {each.path for each in changes if each.change == "relax"}
        self._wider: dict[Path, ice.IcebergType] = {
            each.path: each.type for each in changes if each.change == "widen" and each.type is not None
        }
        self._added: dict[Path, list[SchemaChange]] = {}
        for each in changes:
            if each.change == "add":
                self._added.setdefault(each.path[:-1], []).append(each)

    def fields_of(self, struct: ice.StructType, path: Path) -> list[ice.NestedField]:
        fields = [self._field(each, (*path, each.name)) for each in struct.fields]
        new = [
            ice.NestedField(next(self._ids), each.path[-1], numbered(each.type, self._ids), required=False)
            for each in self._added.get(path, ())
            if each.type is not None
        ]
        if new and not path and (own := [each for each in fields if each.name in self._last]):
            at = fields.index(own[0])
            return [*fields[:at], *new, *fields[at:]]
        return fields + new

    def _field(self, field: ice.NestedField, path: Path) -> ice.NestedField:
        required = field.required and path not in self._relaxed
        return field.model_copy(update={"field_type": self._type(field.field_type, path), "required": required})

    def _type(self, kind: ice.IcebergType, path: Path) -> ice.IcebergType:
        match kind:
            case ice.StructType():
                return ice.StructType(*self.fields_of(kind, path))
            case ice.ListType():
                element = self._field(kind.element_field, (*path, "element"))
                return ice.ListType(kind.element_id, element.field_type, element_required=element.required)
            case ice.MapType():
                value = self._field(kind.value_field, (*path, "value"))
                return ice.MapType(
                    kind.key_id, kind.key_type, kind.value_id, value.field_type, value_required=value.required
                )
            case _:
                return self._wider.get(path, kind)


def numbered(kind: ice.IcebergType, ids: Iterator[int]) -> ice.IcebergType:
    """Return the type of a new column: its parts are optional, and have new field ids."""
    match kind:
        case ice.StructType():
            given = [(next(ids), each) for each in kind.fields]
            return ice.StructType(
                *(
                    ice.NestedField(number, each.name, numbered(each.field_type, ids), required=False)
                    for number, each in given
                )
            )
        case ice.ListType():
            return ice.ListType(next(ids), numbered(kind.element_type, ids), element_required=False)
        case ice.MapType():
            key, value = next(ids), next(ids)
            return ice.MapType(
                key, numbered(kind.key_type, ids), value, numbered(kind.value_type, ids), value_required=False
            )
        case _:
            return kind


def columns_of(schema: Schema) -> Iterator[tuple[Path, ice.NestedField]]:
    """Yield every column of a table by its path, nested ones too."""
    return _columns(schema.as_struct(), ())


def _columns(struct: ice.StructType, path: Path) -> Iterator[tuple[Path, ice.NestedField]]:
    for each in struct.fields:
        yield from columns_in(each, (*path, each.name))


def columns_in(column: ice.NestedField, path: Path) -> Iterator[tuple[Path, ice.NestedField]]:
    """Yield a column by its path, and every column within it."""
    yield path, column
    match column.field_type:
        case ice.StructType() as kind:
            yield from _columns(kind, path)
        case ice.ListType() as kind:
            yield from columns_in(kind.element_field, (*path, "element"))
        case ice.MapType() as kind:
            yield from columns_in(kind.key_field, (*path, "key"))
            yield from columns_in(kind.value_field, (*path, "value"))
        case _:
            return
