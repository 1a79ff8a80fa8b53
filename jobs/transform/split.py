"""Split: one text becomes several columns, cut at a separator."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.formats.problems import WRONG_LENGTH
from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, column
from jobs.transform.nested import value_at
from jobs.transform.path import shown, value_field
from jobs.transform.transform import Applied, RowFailure, Rows, Transform, settled


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
        """Those with one for each part."""
        _, field = value_field(columns, self.column, ("column",))
        if not isinstance(field.field_type, ice.StringType):
            raise TransformProblem(
                f"the column '{self.column}' is {schema_text(field.field_type)}, and text is split", ("column",)
            )
        return Columns.of((*columns.fields, *(column(name, ice.StringType()) for name in self.into)))

    def apply(self, rows: Rows) -> Applied:
        """Null parts of a null text."""
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
