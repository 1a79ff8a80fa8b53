"""Columns of rows between decoding and the table: Iceberg's types, in order, and their Arrow schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import fresh_schema, schema_text, with_null

Place = tuple[int | str, ...]


class TransformProblem(Exception):
    """A step that the columns before it do not allow; found when the spec is validated.

    Args:
        message: What is wrong, in a sentence that names the column.
        place: The part at fault, below the step: its key in the file, the index in a list.
    """

    def __init__(self, message: str, place: Place = ()) -> None:
        super().__init__(message)
        self.message: str = message
        self.place: Place = place


class Step(Protocol):
    """A step, which turns columns into columns, see `jobs.records.transforms.transform`."""

    def output(self, columns: Columns, /) -> Columns:
        """Return the columns behind it."""
        ...


@dataclass(frozen=True)
class Columns:
    """The columns of rows, in order. The fields' ids are arbitrary here.

    Attributes:
        fields: Name and type of each column, and whether it refuses null.
    """

    fields: tuple[ice.NestedField, ...]

    @classmethod
    def of(cls, fields: Schema | Iterable[ice.NestedField]) -> Columns:
        """Return the columns of a schema, or of some fields.

        Raises:
            TransformProblem: Two have the same name, ignoring case.
        """
        found = cls(tuple(fields.fields if isinstance(fields, Schema) else fields))
        _distinct(found.fields, "")
        return found

    @cached_property
    def arrow(self) -> pa.Schema:
        """Return the Arrow schema of rows: a required column is not nullable."""
        return rows_arrow_schema(Schema(*(_at(each, number) for number, each in enumerate(self.fields, 1))))

    @cached_property
    def schema(self) -> Schema:
        """Return the same as a schema, with fresh field ids."""
        return fresh_schema(self.fields)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names, in order."""
        return tuple(each.name for each in self.fields)

    @property
    def text(self) -> str:
        """Return the columns in the words of schema text; equal for equal columns."""
        return ", ".join(f"{each.name} {with_null(each)}" for each in self.fields)

    def behind(self, step: Step) -> Columns:
        """Return the columns behind a step, computed once for each step: every block has the same."""
        known = self.__dict__.setdefault("_behind", {})
        if id(step) not in known:
            known[id(step)] = step, step.output(self)
        return known[id(step)][1]

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": self.fields}

    def index(self, name: str, place: Place = ()) -> int:
        """Return the index of a column.

        Raises:
            TransformProblem: No column has this name.
        """
        for number, each in enumerate(self.fields):
            if each.name == name:
                return number
        raise TransformProblem(no_column(name, self.names), place)

    def field(self, name: str, place: Place = ()) -> ice.NestedField:
        """Return a column by its name; raises as `index` does."""
        return self.fields[self.index(name, place)]

    def __iter__(self) -> Iterator[ice.NestedField]:
        return iter(self.fields)


def column(name: str, kind: ice.IcebergType, *, required: bool = False) -> ice.NestedField:
    """Return a column, with an arbitrary id."""
    return ice.NestedField(1, name, kind, required=required)


def retyped(field: ice.NestedField, kind: ice.IcebergType) -> ice.NestedField:
    """Return the column with another type."""
    return ice.NestedField(field.field_id, field.name, kind, required=field.required, doc=field.doc)


def renamed(field: ice.NestedField, name: str) -> ice.NestedField:
    """Return the column under another name."""
    return ice.NestedField(field.field_id, name, field.field_type, required=field.required, doc=field.doc)


def optional(field: ice.NestedField) -> ice.NestedField:
    """Return the column as an optional one."""
    return ice.NestedField(field.field_id, field.name, field.field_type, required=False, doc=field.doc)


def same(one: ice.IcebergType, other: ice.IcebergType) -> bool:
    """Return whether two types are the same, whatever the ids of their fields."""
    return schema_text(one) == schema_text(other)


def no_column(name: str, known: Iterable[str], within: str = "") -> str:
    """Return the sentence about a column that does not exist at this step."""
    names = tuple(known)
    by_case = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.6)
    hint = f"; did you mean '{by_case[near[0]]}'?" if near else f"; there are {', '.join(names) or 'none'}"
    return f"there is no column '{name}' {f'in {within} ' if within else ''}at this step{hint}"


def _at(field: ice.NestedField, number: int) -> ice.NestedField:
    return ice.NestedField(number, field.name, field.field_type, required=field.required)


def _distinct(fields: Iterable[ice.NestedField], within: str) -> None:
    names: dict[str, str] = {}
    for each in fields:
        other = names.get(each.name.casefold())
        if other == each.name:
            raise TransformProblem(f"there would be two columns '{within}{each.name}'")
        if other is not None:
            raise TransformProblem(f"the columns '{within}{other}' and '{within}{each.name}' would differ by case only")
        names[each.name.casefold()] = each.name
        if isinstance(each.field_type, ice.StructType):
            _distinct(each.field_type.fields, f"{within}{each.name}.")
