"""Rename, keep and drop: which columns stay, within structs as well, and their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import WRONG_LENGTH
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    column,
    renamed,
    retyped,
)
from jobs.records.transforms.nested import list_of, struct_of, value_at
from jobs.records.transforms.path import (
    Path,
    field_at,
    selected,
    shown,
    single,
    value_field,
)
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_Fields: TypeAlias = Callable[[Sequence[ice.NestedField]], tuple[ice.NestedField, ...]]


@dataclass(frozen=True, slots=True)
class Rename(Transform):
    """Rename columns, which keep their places; two may swap names.

    Attributes:
        names: Paths of columns, with their new names; within a struct only the name of the field.
    """

    name: ClassVar[str] = "rename"
    names: tuple[tuple[str, str], ...]

    def output(self, columns: Columns) -> Columns:
        news: dict[Path, str] = {}
        for old, new in self.names:
            try:
                path = single(old)
                field_at(columns, path)
            except TransformProblem as problem:
                raise TransformProblem(problem.message, (old,)) from None
            news[path] = new
        return Columns.of(_named(each, (each.name,), news) for each in columns)

    def apply(self, rows: Rows) -> Applied:
        into = rows.columns.behind(self)
        arrays = [_as_named(array, field.type) for array, field in zip(rows.batch.columns, into.arrow, strict=True)]
        return Applied(rows.with_batch(into, arrays))


@dataclass(frozen=True, slots=True)
class Keep(Transform):
    """Keep only these columns, in their order; a struct keeps those of its fields.

    Attributes:
        columns: Paths, with wildcards.
    """

    name: ClassVar[str] = "keep"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        """Return the columns that a path names, with all columns within and around them."""
        return Columns(_kept(columns.fields, (), selected(columns, self.columns, "keep")))

    def apply(self, rows: Rows) -> Applied:
        return _narrowed(rows, rows.columns.behind(self))


@dataclass(frozen=True, slots=True)
class Drop(Transform):
    """Drop these columns; a struct without fields left is dropped as well.

    Attributes:
        columns: Paths, with wildcards.
    """

    name: ClassVar[str] = "drop"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        left = Columns(_without(columns.fields, (), set(selected(columns, self.columns, "drop"))))
        if not left.fields:
            raise TransformProblem("no column would be left")
        return left

    def apply(self, rows: Rows) -> Applied:
        return _narrowed(rows, rows.columns.behind(self))


def _narrowed(rows: Rows, into: Columns) -> Applied:
    at = {name: number for number, name in enumerate(rows.columns.names)}
    arrays = [_narrow(rows.batch.column(at[field.name]), field.type) for field in into.arrow]
    return Applied(rows.with_batch(into, arrays))


def _narrow(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        return struct_of([_narrow(pc.struct_field(array, each.name), each.type) for each in kind], kind, array)
    return list_of(array, _narrow(array.flatten(), kind.value_type), kind)


def _as_named(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values in a type with other names."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [pc.struct_field(array, [number]) for number in range(array.type.num_fields)]
        return struct_of([_as_named(each, field.type) for each, field in zip(children, kind, strict=True)], kind, array)
    return list_of(array, _as_named(array.flatten(), kind.value_type), kind)


def _named(field: ice.NestedField, path: Path, news: dict[Path, str]) -> ice.NestedField:
    inner = retyped(field, _inner(field.field_type, path, news))
    return renamed(inner, news[path]) if path in news else inner


def _inner(kind: ice.IcebergType, path: Path, news: dict[Path, str]) -> ice.IcebergType:
    match kind:
        case ice.StructType():
            return ice.StructType(*(_named(each, (*path, each.name), news) for each in kind.fields))
        case ice.ListType():
            element = _inner(kind.element_type, path, news)
            return ice.ListType(kind.element_id, element, element_required=kind.element_required)
        case _:
            return kind


def _kept(fields: Sequence[ice.NestedField], above: Path, paths: Collection[Path]) -> tuple[ice.NestedField, ...]:
    found: list[ice.NestedField] = []
    for each in fields:
        here = (*above, each.name)
        if here in paths:
            found.append(each)
        elif any(path[: len(here)] == here for path in paths):
            found.append(retyped(each, _struct(each.field_type, lambda inner, at=here: _kept(inner, at, paths))))
    return tuple(found)


def _without(fields: Sequence[ice.NestedField], above: Path, paths: Collection[Path]) -> tuple[ice.NestedField, ...]:
    found: list[ice.NestedField] = []
    for each in fields:
        here = (*above, each.name)
        if here in paths:
            continue
        if any(path[: len(here)] == here for path in paths):
            kind = _struct(each.field_type, lambda inner, at=here: _without(inner, at, paths))
            if not _empty(kind):
                found.append(retyped(each, kind))
        else:
            found.append(each)
    return tuple(found)


def _struct(kind: ice.IcebergType, change: _Fields) -> ice.IcebergType:
    if isinstance(kind, ice.ListType):
        element = _struct(kind.element_type, change)
        # PyIceberg creates no list of structs without fields.
        return (
            element
            if _empty(element)
            else ice.ListType(kind.element_id, element, element_required=kind.element_required)
        )
    return ice.StructType(*change(kind.fields)) if isinstance(kind, ice.StructType) else kind


def _empty(kind: ice.IcebergType) -> bool:
    return isinstance(kind, ice.StructType) and not kind.fields


@dataclass(frozen=True, slots=True)
class Flatten(Transform):
    """Replace structs by their fields; lists and maps stay. A field of an optional struct is optional.

    Attributes:
        delimiter: Text between the names of a struct and its field.
        only: Names of the columns to flatten; without any, all structs.
    """

    name: ClassVar[str] = "flatten"
    delimiter: str = "_"
    only: tuple[str, ...] = ()

    def output(self, columns: Columns) -> Columns:
        """Return the columns with the structs' fields in place of the structs.

        Raises:
            TransformProblem: Two would have one name, or a named column is no struct.
        """
        for number, name in enumerate(self.only):
            kind = columns.field(name, ("columns", number)).field_type
            if not isinstance(kind, ice.StructType):
                raise TransformProblem(f"the column '{name}' is no struct", ("columns", number))
        return Columns.of(leaf for each in columns for leaf, _ in self._leaves(each, top=True))

    def apply(self, rows: Rows) -> Applied:
        """Flatten the structs; a field is null where its struct is."""
        arrays: list[pa.Array] = []
        for field, array in zip(rows.columns, rows.batch.columns, strict=True):
            for _, path in self._leaves(field, top=True):
                arrays.append(pc.struct_field(array, path) if path else array)
        return Applied(rows.with_batch(rows.columns.behind(self), arrays))

    def _leaves(self, field: ice.NestedField, *, top: bool) -> Iterator[tuple[ice.NestedField, list[str]]]:
        kind = field.field_type
        if not isinstance(kind, ice.StructType) or (top and self.only and field.name not in self.only):
            yield field, []
            return
        for each in kind.fields:
            name = f"{field.name}{self.delimiter}{each.name}"
            inner = column(name, each.field_type, required=each.required and field.required)
            for leaf, path in self._leaves(inner, top=False):
                yield leaf, [each.name, *path]


@dataclass(frozen=True, slots=True)
class Hoist(Transform):
    """Put columns into a struct, behind the columns that stay.

    Attributes:
        into: The name of the new column.
        columns: Names of the columns that go in; without any, all of them.
    """

    name: ClassVar[str] = "hoist"
    into: str
    columns: tuple[str, ...] = ()

    def output(self, columns: Columns) -> Columns:
        inner = [columns.field(name, ("columns", number)) for number, name in enumerate(self.columns)]
        kind = ice.StructType(*(inner or columns.fields))
        stay = [each for each in columns if inner and each.name not in self.columns]
        return Columns.of((*stay, column(self.into, kind, required=True)))

    def apply(self, rows: Rows) -> Applied:
        """Build a struct in every row; a row without a value stays one."""
        into = rows.columns.behind(self)
        names = self.columns or rows.columns.names
        stay = [rows.batch.column(name) for name in rows.columns.names if self.columns and name not in self.columns]
        children = [rows.batch.column(name) for name in names]
        struct = pa.StructArray.from_arrays(
            children, fields=list(rows_arrow_type(into.fields[-1].field_type)), mask=rows.tombstones
        )
        return Applied(rows.with_batch(into, [*stay, struct]))


@dataclass(frozen=True, slots=True)
class Extract(Transform):
    """Replace the row's columns by a struct's fields. A row whose struct is null has no value any more.

    Attributes:
        column: The path of the struct.
        keep: Names of columns that stay, before the fields.
    """

    name: ClassVar[str] = "extract"
    column: str
    keep: tuple[str, ...] = ()

    def output(self, columns: Columns) -> Columns:
        _, field = value_field(columns, self.column, ("column",))
        if not isinstance(field.field_type, ice.StructType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(field.field_type)}, and a struct is taken out; keep: "
                f"[{self.column}] leaves this column alone",
                ("column",),
            )
        stay = [columns.field(name, ("keep", number)) for number, name in enumerate(self.keep)]
        return Columns.of((*stay, *field.field_type.fields))

    def apply(self, rows: Rows) -> Applied:
        """Extract the fields; a row whose struct is null becomes a tombstone."""
        into = rows.columns.behind(self)
        path, field = value_field(rows.columns, self.column)
        struct = value_at(rows.batch.column(rows.columns.index(path[0])), path[1:])
        arrays = [rows.batch.column(name) for name in self.keep]
        if isinstance(field.field_type, ice.StructType):
            arrays += [pc.struct_field(struct, each.name) for each in field.field_type.fields]
        made = rows.with_batch(into, arrays)
        if not struct.null_count:
            return Applied(made)
        gone = struct.is_null() if rows.tombstones is None else pc.or_(struct.is_null(), rows.tombstones)
        return Applied(Rows(made.columns, made.batch, made.frame, gone))


@dataclass(frozen=True, slots=True)
class Split(Transform):
    """Cut a text at each separator; its parts become text columns behind the others. The text stays.

    Attributes:
        column: The path of the text.
        by: The separator, taken literally.
        into: The names of the columns. A text with another number of parts makes its row fail.
        rest: Whether the last column takes the whole rest, with its separators.
    """

    name: ClassVar[str] = "split"
    column: str
    by: str
    into: tuple[str, ...]
    rest: bool = False

    def output(self, columns: Columns) -> Columns:
        _, field = value_field(columns, self.column, ("column",))
        if not isinstance(field.field_type, ice.StringType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(field.field_type)}, and text is split", ("column",)
            )
        return Columns.of((*columns.fields, *(column(name, ice.StringType()) for name in self.into)))

    def apply(self, rows: Rows) -> Applied:
        path, _ = value_field(rows.columns, self.column)
        text = value_at(rows.batch.column(rows.columns.index(path[0])), path[1:])
        count = len(self.into)
        parts = pc.split_pattern(text, self.by, max_splits=count - 1 if self.rest else None)
        lengths = pc.list_value_length(parts)
        bad = np.flatnonzero(pc.fill_null(pc.not_equal(lengths, count), False).to_numpy(zero_copy_only=False))
        failures: list[RowFailure] = []
        if len(bad):
            numbers = lengths.take(pa.array(bad)).to_pylist()
            failures = [
                RowFailure(int(row), WRONG_LENGTH, f"needs {count} parts, found {number}", shown(path))
                for row, number in zip(bad, numbers, strict=True)
            ]
            good = pc.fill_null(pc.equal(lengths, count), False)
            parts = pc.if_else(good, parts, pa.scalar(None, parts.type))
        arrays = [
            pc.list_element(parts, number) if len(parts) else pa.array([], pa.string()) for number in range(count)
        ]
        return settled(rows.with_batch(rows.columns.behind(self), [*rows.batch.columns, *arrays]), failures)
