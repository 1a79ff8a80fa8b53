"""Rename, keep and drop: which columns there are, within structs as well, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.transform.columns import Columns, TransformProblem, renamed, retyped
from jobs.transform.nested import list_of, struct_of
from jobs.transform.path import Path, field_at, selected, single
from jobs.transform.transform import Applied, Rows, Transform

_Fields: TypeAlias = Callable[[Sequence[ice.NestedField]], tuple[ice.NestedField, ...]]


@dataclass(frozen=True, slots=True)
class Rename(Transform):
    """Columns get other names and stay where they are; two may swap theirs.

    Attributes:
        names: Paths of columns, with their new names; within a struct, the name of the field alone.
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
    """Only these columns are kept, in the order that they had; a struct with those of its fields.

    Attributes:
        columns: Paths, with wildcards.
    """

    name: ClassVar[str] = "keep"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        """Those that a path names, with all that is within and around them."""
        return Columns(_kept(columns.fields, (), selected(columns, self.columns, "keep")))

    def apply(self, rows: Rows) -> Applied:
        return _narrowed(rows, rows.columns.behind(self))


@dataclass(frozen=True, slots=True)
class Drop(Transform):
    """These columns are left out; a struct without fields left is left out as well.

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
    """The same values in a type with other names."""
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
        # PyIceberg makes no list of structs without fields.
        return (
            element
            if _empty(element)
            else ice.ListType(kind.element_id, element, element_required=kind.element_required)
        )
    return ice.StructType(*change(kind.fields)) if isinstance(kind, ice.StructType) else kind


def _empty(kind: ice.IcebergType) -> bool:
    return isinstance(kind, ice.StructType) and not kind.fields
