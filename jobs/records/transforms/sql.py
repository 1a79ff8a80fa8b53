"""SQL in steps: computed columns, conditions, rules for every row, and the record's parts that an expression uses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from jobs.records.expressions.expression import (
    FRAME_PARTS,
    Evaluated,
    Expression,
    compile_condition,
    compile_expression,
)
from jobs.records.expressions.parser import asks_batch_time
from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.formats.interface.problems import EXPRESSION_FAILED, RULE_VIOLATED
from jobs.records.transforms.columns import (
    Columns,
    Place,
    TransformProblem,
    column,
)
from jobs.records.transforms.conditional import Condition
from jobs.records.transforms.frame import BATCH_TIME, FETCHED
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_ASKS = {part: re.compile(rf"\b_{part}\b", re.IGNORECASE) for part in FETCHED}
_HEADER = re.compile(r"\bheader\s*\(", re.IGNORECASE)


def asks_of(text: str) -> frozenset[str]:
    """Return the record's parts that an expression may use, perhaps too many; and the batch's time if it is used."""
    found = {part for part, pattern in _ASKS.items() if pattern.search(text)}
    if asks_batch_time(text):
        found.add(BATCH_TIME)
    return frozenset(found | ({"headers"} if _HEADER.search(text) else set()))


def compiled(text: str, columns: Columns, place: Place = (), *, condition: bool = False) -> Expression:
    """Return the expression over rows with these columns, compiled once for them.

    Raises:
        TransformProblem: The text is no expression, with the place in it.
    """
    known: dict[tuple[str, bool], Expression] = columns.__dict__.setdefault("_expressions", {})
    if (text, condition) not in known:
        try:
            make = compile_condition if condition else compile_expression
            known[text, condition] = make(text, columns.fields)
        except ExpressionProblem as problem:
            raise TransformProblem(str(problem), place) from None
    return known[text, condition]


def evaluated(expression: Expression, rows: Rows) -> Evaluated:
    """Evaluate an expression for rows, with the parts of their records that it uses as further columns.

    now() is the time of the batch, from the rows' frame.
    """
    batch = rows.batch
    names = set(batch.schema.names)
    for name in expression.columns:
        if name not in names:
            batch = batch.append_column(name, rows.frame.part(FRAME_PARTS[name]))
    return expression.evaluate(batch, rows.frame.batch_time)


def failures_of(found: Evaluated, text: str, path: str | None = None) -> list[RowFailure]:
    """Return failures of the rows that an expression has no value for, except rows without a value."""
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    needed = f"needs a value of the expression `{shown}`, found none"
    return [RowFailure(each.row, EXPRESSION_FAILED, f"{needed}: {each.message}", path) for each in found.failures]


@dataclass(frozen=True, slots=True)
class Compute(Transform):
    """Compute columns by SQL expressions over the row before the step.

    Attributes:
        expressions: Names of columns, with the text of each; an existing one is replaced at its place.
    """

    name: ClassVar[str] = "compute"
    expressions: tuple[tuple[str, str], ...]

    @property
    def asks(self) -> frozenset[str]:
        return frozenset().union(*(asks_of(text) for _, text in self.expressions))

    @property
    def adds(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.expressions)

    def output(self, columns: Columns) -> Columns:
        """Return the columns with the computed ones.

        Raises:
            TransformProblem: A text is no expression over these columns.
        """
        fields = list(columns.fields)
        for name, text in self.expressions:
            found = compiled(text, columns, (name,))
            made = column(name, found.type, required=not found.nullable)
            at = next((number for number, field in enumerate(fields) if field.name == name), None)
            if at is None:
                fields.append(made)
            else:
                fields[at] = made
        return Columns.of(fields)

    def apply(self, rows: Rows) -> Applied:
        """Compute the columns; a row that an expression has no value for fails."""
        arrays = dict(zip(rows.columns.names, rows.batch.columns, strict=True))
        failures: list[RowFailure] = []
        made: dict[str, pa.Array] = {}
        for name, text in self.expressions:
            found = evaluated(compiled(text, rows.columns), rows)
            made[name] = found.values
            failures += failures_of(found, text, f"$.{name}")
        into = rows.columns.behind(self)
        return settled(rows.with_batch(into, [(arrays | made)[name] for name in into.names]), failures)


@dataclass(frozen=True, slots=True)
class SqlCondition(Condition):
    """A SQL expression is true of the row; null is not true.

    Attributes:
        text: The expression.
    """

    text: str

    @property
    def asks(self) -> frozenset[str]:
        return asks_of(self.text)

    def check(self, columns: Columns) -> None:
        """Check that it is a condition over these columns."""
        compiled(self.text, columns, condition=True)

    def holds(self, rows: Rows) -> tuple[Mask, Sequence[RowFailure]]:
        found = evaluated(compiled(self.text, rows.columns, condition=True), rows)
        return mask_of(found.true()), failures_of(found, self.text)


@dataclass(frozen=True, slots=True)
class Rule(Transform):
    """A condition that every row has to meet.

    Attributes:
        rule: The rule's name.
        expect: A SQL expression that has to be true; null is not true.
        warn: Whether rows that break it land nevertheless, and are counted.
    """

    rule: str
    expect: str
    warn: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.rule

    @property
    def asks(self) -> frozenset[str]:
        return asks_of(self.expect)

    def output(self, columns: Columns) -> Columns:
        compiled(self.expect, columns, ("expect",), condition=True)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Check the rows; a row for which the condition is undecidable breaks the rule as well."""
        found = evaluated(compiled(self.expect, rows.columns, condition=True), rows)
        met = found.true().to_numpy(zero_copy_only=False)
        if rows.tombstones is not None:
            met = met | rows.tombstones.to_numpy(zero_copy_only=False)
        broken = np.flatnonzero(~met)
        if not len(broken):
            return Applied(rows)
        if self.warn:
            return Applied(rows, warned={self.rule: broken.astype(np.int64)})
        unsaid = {each.row: each.message for each in failures_of(found, self.expect)}
        message = f"needs {self.expect} (rule {self.rule})"
        failures = [RowFailure(row, RULE_VIOLATED, unsaid.get(row, message)) for row in broken.tolist()]
        return settled(rows, failures)
