"""Row filter of a mirror: a collapsed row that does not fulfil its condition counts as deleted."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from jobs.mirrors.fold.fold import DELETE, FOLD_COLUMN, FROM_TARGET_COLUMN, REFOLD_COLUMN, UPSERT
from jobs.records.expressions.expression import Expression, compile_condition
from jobs.records.schema.arrow_schema import rows_arrow_type

FILTERED_COLUMN, UNJUDGED_COLUMN, PROBLEM_COLUMN = "_filtered", "_unjudged", "_problem"
JUDGED_FIELDS = (
    pa.field(FILTERED_COLUMN, pa.bool_()),
    pa.field(UNJUDGED_COLUMN, pa.bool_()),
    pa.field(PROBLEM_COLUMN, pa.string()),
)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition over the rows of a mirror; can be pickled. Without one all rows are in the mirror.

    Attributes:
        condition: Compiled condition.
        kinds: Types of the columns that it reads, by name.
    """

    condition: Expression | None = None
    kinds: Mapping[str, pa.DataType] | None = None

    @staticmethod
    def of(text: str | None, schema: Schema, columns: Iterable[str]) -> RowFilter:
        """The filter of a plan.

        Raises:
            ExpressionProblem: The condition does not fit the columns.
        """
        if text is None:
            return RowFilter()
        fields = [schema.find_field(name) for name in columns]
        condition = compile_condition(text, fields, frame=False)
        kinds = {each.name: rows_arrow_type(each.field_type) for each in fields if each.name in condition.columns}
        return RowFilter(condition, kinds)

    def judged(self, folded: pa.Table) -> pa.Table:
        """Apply the filter to collapsed rows.

        Returns:
            The rows with `_fold_op` set to delete and `_filtered` true where the condition is not true, with
            `_unjudged` true where the row lacks a value that the condition reads, and with `_problem`: why the
            condition failed.
        """
        rows = folded.num_rows
        no, nothing = pa.repeat(pa.scalar(False), rows), pa.nulls(rows, pa.string())
        if self.condition is None or not rows:
            return _with(folded, no, no, nothing)
        batch = folded.combine_chunks().to_batches()[0]
        upsert = pc.equal(batch[FOLD_COLUMN], UPSERT)
        elsewhere = batch[REFOLD_COLUMN]
        for name in self.condition.columns:
            elsewhere = pc.or_(elsewhere, _contains(batch[FROM_TARGET_COLUMN], name))
        asked = pc.and_not(upsert, elsewhere)
        kinds = self.kinds or {}
        read = pa.RecordBatch.from_arrays([batch[name].cast(kind) for name, kind in kinds.items()], [*kinds])
        found = self.condition.evaluate(read)
        out = pc.and_not(asked, found.true())
        problems: list[str | None] = [None] * rows
        for row, message in found.failures:
            problems[row] = message
        problem = pc.if_else(asked, pa.array(problems, pa.string()), nothing)
        ops = pc.if_else(out, DELETE, batch[FOLD_COLUMN])
        changed = folded.set_column(folded.schema.get_field_index(FOLD_COLUMN), FOLD_COLUMN, ops)
        return _with(changed, out, pc.and_(upsert, elsewhere), problem)


def _with(folded: pa.Table, filtered: pa.Array, unjudged: pa.Array, problem: pa.Array) -> pa.Table:
    for field, values in zip(JUDGED_FIELDS, (filtered, unjudged, problem), strict=True):
        there = folded.schema.get_field_index(field.name)
        folded = folded.append_column(field, values) if there < 0 else folded.set_column(there, field, values)
    return folded


def _contains(lists: pa.Array, name: str) -> pa.Array:
    """Mask of the lists that contain a name."""
    mask = [False] * len(lists)
    for row in pc.list_parent_indices(lists).filter(pc.equal(lists.flatten(), name)).to_pylist():
        mask[row] = True
    return pa.array(mask)
