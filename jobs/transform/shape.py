"""Hoist and extract: columns put into a struct, and a struct's fields put in place of the row."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.schema.arrow_schema import rows_arrow_type
from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.nested import value_at
from jobs.transform.path import value_field
from jobs.transform.transform import Applied, Rows, Transform


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
        """Those that stay, and the struct."""
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
        """Those that stay, and the fields."""
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
