"""SQL expression over the columns of one row, compiled when a spec is validated and evaluated on Arrow in a task.

An expression has no state, reads no file and no network, and has the same result for the same row. Its text is compiled
to nodes of typed kernels (`nodes`). Nodes are picklable data, so a task evaluates them without preparation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.binder import Binder
from jobs.records.expressions.casts import coerced
from jobs.records.expressions.nodes import (
    BatchTime,
    Column,
    Literal,
    Node,
    Rows,
    depth,
    parts,
)
from jobs.records.expressions.parser import parse
from jobs.records.expressions.problem import ExpressionProblem, Mismatch
from jobs.records.expressions.sql_types import BOOLEAN, STRING, name_of
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.kafka_columns import TYPES

DEEPEST = 150
"""Limit of nested kernels, so that evaluation does not overflow a task's stack."""


class ExpressionFailure(NamedTuple):
    """A row for which an expression fails.

    Attributes:
        row: Index in the batch.
        message: Failing part of the expression, and the reason.
    """

    row: int
    message: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Result of an expression for a batch.

    Attributes:
        values: One value for each row, in the Arrow type of the expression; null for failed rows.
        failures: One failure for each failed row, ascending.
    """

    values: pa.Array
    failures: Sequence[ExpressionFailure] = ()

    def true(self) -> pa.BooleanArray:
        """Mask of the rows that meet a condition; null and failed rows do not."""
        return pc.fill_null(self.values, False)


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; can be pickled.

    Attributes:
        text: Text of the expression.
        node: Compiled node.
        columns: Names of the columns that it reads, in the order of their first use; those in `FRAME_COLUMNS` are no
            columns of the row.
    """

    text: str
    node: Node
    columns: tuple[str, ...]

    @property
    def type(self) -> ice.IcebergType:
        """Type of the values."""
        return self.node.type

    @property
    def nullable(self) -> bool:
        """Whether a value may be null; false only if required columns hold no nulls."""
        return self.node.nullable

    @property
    def needs_batch_time(self) -> bool:
        """Whether it calls now()."""
        return any(isinstance(each, BatchTime) for each in parts(self.node))

    def evaluate(self, batch: pa.RecordBatch, batch_time: datetime | None = None) -> Evaluated:
        """Evaluate the expression for every row.

        Args:
            batch: Batch with `columns`, and possibly others.
            batch_time: Value of now(); required only if `needs_batch_time`.
        """
        if not batch.num_rows:
            return Evaluated(pa.array([], rows_arrow_type(self.type)))
        found = self.node.evaluate(Rows(batch, batch_time))
        values = found.array
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, batch.num_rows)
        return Evaluated(values, [ExpressionFailure(row, found.failed[row]) for row in sorted(found.failed)])


def compile_expression(text: str, columns: Iterable[ice.NestedField], *, frame: bool = True) -> Expression:
    """Compile an expression over rows with these columns.

    Args:
        text: One SQL expression.
        columns: Columns of the row with their types.
        frame: Whether `FRAME_COLUMNS` and header() are allowed; a column of the row with such a name has precedence.

    Raises:
        ExpressionProblem: The text is no valid expression; the error has the place in the text.
    """
    node = _node(text, columns, frame)
    if isinstance(node.type, ice.UnknownType):
        node = Literal(pa.scalar(None, pa.string()), STRING)
    return _expression(text, node)


def compile_condition(text: str, columns: Iterable[ice.NestedField], *, frame: bool = True) -> Expression:
    """Compile a condition over rows with these columns: a boolean expression. A row meets it only if it is true.

    Raises:
        ExpressionProblem: The text is no valid condition; the error has the place in the text.
    """
    node = _node(text, columns, frame)
    try:
        return _expression(text, coerced(node, BOOLEAN, text.strip()))
    except Mismatch:
        why = f"needs a condition, which is true or false, found {name_of(node.type)}"
        raise ExpressionProblem(why, text, 0) from None


def _node(text: str, columns: Iterable[ice.NestedField], frame: bool) -> Node:
    row = {each.name: Column(each.name, each.field_type, not each.required) for each in columns}
    beside = FRAME_COLUMNS.values() if frame else ()
    hidden = {each.name: Column(each.name, each.field_type, not each.required) for each in beside}
    try:
        node = Binder(text, row, hidden).bind(parse(text))
    except RecursionError:
        raise ExpressionProblem("the expression is nested too deeply", text, 0) from None
    if depth(node) > DEEPEST:
        raise ExpressionProblem("the expression is nested too deeply", text, 0)
    return node


def _expression(text: str, node: Node) -> Expression:
    names = dict.fromkeys(each.name for each in parts(node) if isinstance(each, Column))
    return Expression(text, node, tuple(names))


FRAME_PARTS: Mapping[str, str] = {f"_{part}": part for part in TYPES}
"""Part of a record for each column of Kafka: `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, …"""
FRAME_COLUMNS: Mapping[str, ice.NestedField] = {
    name: ice.NestedField(
        2_000_000 + number, name, TYPES[part], required=part in ("topic", "partition", "offset", "timestamp")
    )
    for number, (name, part) in enumerate(FRAME_PARTS.items())
}
"""These columns with their types."""
