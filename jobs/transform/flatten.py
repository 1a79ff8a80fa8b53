"""Flatten: the fields of structs become columns of their own, with joined names."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.transform import Applied, Rows, Transform


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
