"""Conditional step: another one, taken by those rows of a block for which a condition holds.

All rows of a block have the same columns. So behind a conditional step there are those that the step gives, and behind
them those that it took away; a column that one of the two kinds of rows lacks is optional, and null in those. One name
with two types is refused when the spec is validated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.schema.iceberg_schema import schema_text
from jobs.transform.columns import Columns, TransformProblem, optional, same
from jobs.transform.condition import Condition
from jobs.transform.frame import Frame
from jobs.transform.transform import NO_ROWS, Applied, PassingStep, Rows, Transform, settled


@dataclass(frozen=True, slots=True)
class Conditional(Transform):
    """A step under a condition.

    Attributes:
        step: The step.
        condition: Of the rows that take it.
    """

    step: Transform
    condition: Condition

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.step.name

    @property
    def asks(self) -> frozenset[str]:
        return self.step.asks | self.condition.asks

    @property
    def adds(self) -> frozenset[str] | None:
        return self.step.adds

    @property
    def retypes(self) -> bool:
        return self.step.retypes

    def prepare(self) -> None:
        self.step.prepare()

    def output(self, columns: Columns) -> Columns:
        """Those that the step gives, then those that it took away."""
        try:
            self.condition.check(columns)
        except TransformProblem as problem:
            raise TransformProblem(problem.message, ("..", "when", *problem.place)) from None
        return merged(self.step.output(columns), columns)

    def apply(self, rows: Rows) -> Applied:
        """The rows for which the condition holds as the step leaves them; the others pass."""
        into = rows.columns.behind(self)
        mask, unsure = self.condition.holds(rows)
        failed = {each.row for each in unsure}
        if failed:
            mask = mask.copy()
            mask[list(failed)] = False
        chosen = np.flatnonzero(mask)
        others = np.setdiff1d(np.flatnonzero(~mask), np.fromiter(failed, np.int64, len(failed)))
        if not len(chosen):
            kept = None if not failed else others
            return Applied(_fitted(rows if kept is None else rows.take(kept), into), kept, sorted(unsure))
        made = self.step.apply(rows if len(chosen) == rows.count else rows.take(chosen))
        left = chosen if made.kept is None else chosen[made.kept]
        failures = sorted([*unsure, *(each._replace(row=int(chosen[each.row])) for each in made.failures)])
        filtered = chosen[made.filtered] if len(made.filtered) else NO_ROWS
        if not len(others):
            return Applied(_fitted(made.rows, into), None if len(left) == rows.count else left, failures, filtered)
        both = _together(_fitted(made.rows, into), _fitted(rows.take(others), into))
        every = np.concatenate([left, others])
        order = np.argsort(every, kind="stable")
        kept = every[order]
        return Applied(both.take(order), None if len(kept) == rows.count else kept, failures, filtered)


def merged(first: Columns, second: Columns) -> Columns:
    """The columns of rows of two kinds: those of the first, then those that only the second has.

    Raises:
        TransformProblem: One name has two types.
    """
    if first.text == second.text:
        return first
    others = {each.name: each for each in second.fields}
    fields: list[ice.NestedField] = []
    for each in first.fields:
        other = others.pop(each.name, None)
        if other is not None and not same(each.field_type, other.field_type):
            raise TransformProblem(
                f"under a condition the column '{each.name}' would be {schema_text(each.field_type)} in rows that take "
                f"the step, and {schema_text(other.field_type)} in the others; give it another name, or take the "
                "step without when"
            )
        fields.append(each if other is not None and other.required else optional(each))
    return Columns.of((*fields, *(optional(each) for each in others.values())))


def _fitted(rows: Rows, into: Columns) -> Rows:
    """Rows with the columns of both kinds, null in those that they lack."""
    if rows.columns.text == into.text:
        return rows
    there = {each.name: array for each, array in zip(rows.columns.fields, rows.batch.columns, strict=True)}
    arrays = [there[field.name] if field.name in there else pa.nulls(rows.count, field.type) for field in into.arrow]
    return rows.with_batch(into, arrays)


def _together(first: Rows, second: Rows) -> Rows:
    batch = pa.concat_batches([first.batch, second.batch])
    gone = None
    if first.tombstones is not None or second.tombstones is not None:
        gone = pa.concat_arrays([_gone(first), _gone(second)])
    return replace(first, batch=batch, frame=Frame.joined(first.frame, second.frame), tombstones=gone)


def _gone(rows: Rows) -> pa.Array:
    return pa.repeat(pa.scalar(False), rows.count) if rows.tombstones is None else rows.tombstones


@dataclass(frozen=True, slots=True)
class Filter(PassingStep):
    """Rows are dropped.

    Attributes:
        condition: Of each row; None: it holds for every one.
        drop: Whether those are dropped for which it holds; else the others.
    """

    name: ClassVar[str] = "filter"
    condition: Condition | None = None
    drop: bool = True

    @property
    def asks(self) -> frozenset[str]:
        return self.condition.asks if self.condition else frozenset()

    def output(self, columns: Columns) -> Columns:
        if self.condition is not None:
            self.condition.check(columns)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """A row of which the condition cannot be said fails."""
        if self.condition is None:
            mask, failures = np.ones(rows.count, dtype=bool), ()
        else:
            mask, failures = self.condition.holds(rows)
        dropped = mask if self.drop else ~mask
        if failures:
            dropped = dropped.copy()
            dropped[[each.row for each in failures]] = False
        return settled(rows, failures, np.flatnonzero(dropped))
