"""Conditions, and steps under them: which rows of a block take a step, or are dropped.

All rows of a block have the same columns. So behind a conditional step there are the step's columns, and behind them
those that it removed; a column that only one kind of rows has is optional, and null in the others. One name with two
types is refused when the spec is validated."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    optional,
    same,
)
from jobs.records.transforms.frame import Frame
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.transform import (
    NO_ROWS,
    Applied,
    PassingStep,
    RowFailure,
    Rows,
    Transform,
    settled,
)


class Condition(ABC):
    """A condition on each row. Implementations are frozen dataclasses."""

    @property
    def asks(self) -> frozenset[str]:
        """Return the parts of the frame that have to be fetched, as a transform does."""
        return frozenset()

    def check(self, columns: Columns) -> None:  # noqa: B027 - most conditions ask nothing of the columns
        """Check that the condition fits rows with these columns.

        Raises:
            TransformProblem: It does not.
        """

    @abstractmethod
    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """Return a mask of the rows for which it holds, and failures of the rows for which it is undecidable."""


@dataclass(frozen=True, slots=True)
class TopicMatches(Condition):
    """The whole name of the topic, as steps left it, matches a pattern.

    Attributes:
        pattern: In the syntax of Python's `re`.
    """

    pattern: str

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        encoded = pc.dictionary_encode(rows.frame.part("topic"))
        wanted = re.compile(self.pattern)
        of = pa.array([wanted.fullmatch(each) is not None for each in encoded.dictionary.to_pylist()], pa.bool_())
        return mask_of(of.take(encoded.indices)), ()


@dataclass(frozen=True, slots=True)
class HasHeader(Condition):
    """The record has a header of a name, whatever its value.

    Attributes:
        header: The name, exactly.
    """

    header: str

    @property
    def asks(self) -> frozenset[str]:
        return frozenset({"headers"})

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """Evaluate the condition; a record without headers has none of this name."""
        headers = rows.frame.part("headers")
        found = np.zeros(len(headers), dtype=bool)
        names = pc.struct_field(headers.flatten(), "key")
        found[pc.list_parent_indices(headers).to_numpy()[mask_of(pc.equal(names, self.header))]] = True
        return found, ()


@dataclass(frozen=True, slots=True)
class IsTombstone(Condition):
    """The row has no value at this step: a step before it took the value away."""

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        return (np.zeros(rows.count, dtype=bool) if rows.tombstones is None else mask_of(rows.tombstones)), ()


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """Another condition does not hold.

    Attributes:
        inner: The other condition.
    """

    inner: Condition

    @property
    def asks(self) -> frozenset[str]:
        return self.inner.asks

    def check(self, columns: Columns) -> None:
        self.inner.check(columns)

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        found, failures = self.inner.holds(rows)
        return ~found, failures


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """Several conditions hold.

    Attributes:
        inner: The conditions.
    """

    inner: tuple[Condition, ...]

    @property
    def asks(self) -> frozenset[str]:
        return frozenset().union(*(each.asks for each in self.inner))

    def check(self, columns: Columns) -> None:
        for each in self.inner:
            each.check(columns)

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        """Evaluate all conditions; a row for which one is undecidable fails, unless another one is false."""
        every = [each.holds(rows) for each in self.inner]
        found = np.logical_and.reduce([mask for mask, _ in every])
        no = np.zeros(rows.count, dtype=bool)
        for mask, failures in every:
            refuted = ~mask
            refuted[[each.row for each in failures]] = False
            no |= refuted
        return found, [one for _, failures in every for one in failures if not no[one.row]]


@dataclass(frozen=True, slots=True)
class Conditional(Transform):
    """A step under a condition.

    Attributes:
        step: The step.
        condition: Condition of the rows that take the step.
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
        """Return the step's columns, then those that it removed."""
        try:
            self.condition.check(columns)
        except TransformProblem as problem:
            raise TransformProblem(problem.message, ("..", "when", *problem.place)) from None
        return merged(self.step.output(columns), columns)

    def apply(self, rows: Rows) -> Applied:
        """Take the step on rows for which the condition holds; the others pass unchanged."""
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
    """Return the columns of rows of two kinds: those of the first, then those that only the second has.

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
    """Return rows with the columns of both kinds, null in those that they lack."""
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
    """Drop rows.

    Attributes:
        condition: Condition on each row; None for all rows.
        drop: Whether the rows that meet it are dropped; otherwise the others are.
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
        """Drop rows; a row for which the condition is undecidable fails."""
        if self.condition is None:
            mask, failures = np.ones(rows.count, dtype=bool), ()
        else:
            mask, failures = self.condition.holds(rows)
        dropped = mask if self.drop else ~mask
        if failures:
            dropped = dropped.copy()
            dropped[[each.row for each in failures]] = False
        return settled(rows, failures, np.flatnonzero(dropped))
