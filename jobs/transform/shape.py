"""Shape of rows: structs taken apart or put together, a struct in place of the row, and a text cut into columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.formats.problems import WRONG_LENGTH
from jobs.schema.arrow_schema import rows_arrow_type
from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.nested import value_at
from jobs.transform.path import shown, value_field
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class Flatten(Transform):
    """Structs are taken apart at their place; lists and maps stay. A field of an optional struct is optional.

    Attributes:
        delimiter: Between the names of a struct and its field.
        only: Names of the columns that are taken apart; without any, all structs.
    """

    name: ClassVar[str] = "flatten"
    delimiter: str = "_"
    only: tuple[str, ...] = ()

    def output(self, columns: Columns) -> Columns:
        """Those of the structs in place of the structs.

        Raises:
            TransformProblem: Two would have one name, or one that is named is no struct.
        """
        for number, name in enumerate(self.only):
            kind = columns.field(name, ("columns", number)).field_type
            if not isinstance(kind, ice.StructType):
                raise TransformProblem(f"the column '{name}' is no struct", ("columns", number))
        return Columns.of(leaf for each in columns for leaf, _ in self._leaves(each, top=True))

    def apply(self, rows: Rows) -> Applied:
        """A field is null where its struct is."""
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
    """Columns are put into one of structs, behind those that stay.

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
        """A struct in every row; of a row without a value none, which stays one without."""
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
    """The fields of a struct take the place of the row's columns. Where it is null the row has no value any more.

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
        """A row whose struct is null is a tombstone."""
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
    """A text is cut at each separator; its parts are columns of text behind the others. The text stays.

    Attributes:
        column: The path of the text.
        by: The separator, a text that stands for itself.
        into: The names of the columns. A text with another number of parts makes its row fail.
        rest: Whether the last column takes all that is left, separators and all.
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
