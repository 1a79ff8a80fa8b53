"""Typed nodes of an expression, and their evaluation on rows.

Conditions are lazy: the failure of a part counts only in rows whose value needs that part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.values import (
    Fault,
    Kernel,
    Values,
    applied,
)
from jobs.records.schema.arrow_schema import rows_arrow_type

NULL_TYPE = ice.UnknownType()
"""Type of NULL before its context gives it another one."""


BOOLEAN, TIMESTAMPTZ = ice.BooleanType(), ice.TimestamptzType()


def arrow_of(kind: ice.IcebergType) -> pa.DataType:
    """Return the Arrow type for values of an Iceberg type."""
    return pa.null() if isinstance(kind, ice.UnknownType) else rows_arrow_type(kind)


@dataclass(frozen=True, slots=True)
class Rows:
    """Input of an expression.

    Attributes:
        batch: Rows, with the columns that the expression reads.
        batch_time: Value of now(); None if no expression calls it.
    """

    batch: pa.RecordBatch
    batch_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the row."""

    name: str
    type: ice.IcebergType
    nullable: bool

    def evaluate(self, rows: Rows) -> Values:
        array, kind = rows.batch.column(self.name), arrow_of(self.type)
        return Values(array if array.type == kind else array.cast(kind))


@dataclass(frozen=True, slots=True)
class Literal:
    """One value for every row."""

    value: pa.Scalar
    type: ice.IcebergType

    @property
    def nullable(self) -> bool:
        return not self.value.is_valid

    def evaluate(self, rows: Rows) -> Values:
        return Values(self.value)


@dataclass(frozen=True, slots=True)
class BatchTime:
    """The time of the batch, which is the same in each repetition of the batch."""

    type: ice.IcebergType = TIMESTAMPTZ
    nullable: bool = False

    def evaluate(self, rows: Rows) -> Values:
        if rows.batch_time is None:
            raise ValueError("an expression with now() needs the batch's time")
        return Values(pa.repeat(pa.scalar(rows.batch_time, pa.timestamp("us", "UTC")), rows.batch.num_rows))


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its arguments, of which at least one is no literal."""

    kernel: Kernel
    arguments: tuple[Node, ...]
    type: ice.IcebergType
    nullable: bool
    fault: Fault

    def evaluate(self, rows: Rows) -> Values:
        return applied(self.kernel, [each.evaluate(rows) for each in self.arguments], self.fault)


@dataclass(frozen=True, slots=True)
class Logic:
    """AND or OR, from left to right: the failure of a part counts only if the parts before it do not decide."""

    word: str
    parts: tuple[Node, ...]
    nullable: bool
    type: ice.IcebergType = BOOLEAN

    def evaluate(self, rows: Rows) -> Values:
        kernel, deciding = (pc.and_kleene, False) if self.word == "and" else (pc.or_kleene, True)
        found = [each.evaluate(rows) for each in self.parts]
        array, failed = found[0].array, dict(found[0].failed)
        for each in found[1:]:
            if each.failed:
                decided = _as_array(pc.equal(array, deciding), rows).to_pylist()
                failed |= {
                    row: why for row, why in each.failed.items() if row not in failed and decided[row] is not True
                }
            array = kernel(array, each.array)
        return Values(_as_array(array, rows)).nulled(failed)


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first true condition, as in CASE and IF."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node
    type: ice.IcebergType
    nullable: bool

    def evaluate(self, rows: Rows) -> Values:
        conditions = [condition.evaluate(rows) for condition, _ in self.branches]
        values = [value.evaluate(rows) for _, value in self.branches]
        last = self.otherwise.evaluate(rows)
        masks = [_as_array(pc.fill_null(each.array, False), rows) for each in conditions]
        result = _as_array(last.array, rows)
        for mask, value in zip(reversed(masks), reversed(values), strict=True):
            result = pc.if_else(mask, value.array, result)
        if not any(each.failed for each in (*conditions, *values, last)):
            return Values(result)
        failed: dict[int, str] = {}
        undecided = np.ones(rows.batch.num_rows, np.bool_)
        for condition, mask, value in zip(conditions, masks, values, strict=True):
            failed |= {row: why for row, why in condition.failed.items() if undecided[row]}
            undecided[list(condition.failed)] = False
            chosen = undecided & mask.to_numpy(zero_copy_only=False)
            failed |= {row: why for row, why in value.failed.items() if chosen[row]}
            undecided &= ~chosen
        failed |= {row: why for row, why in last.failed.items() if undecided[row]}
        return Values(result).nulled(failed)


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first value that is not null; failures of later values do not count."""

    parts: tuple[Node, ...]
    type: ice.IcebergType
    nullable: bool

    def evaluate(self, rows: Rows) -> Values:
        found = [each.evaluate(rows) for each in self.parts]
        array, failed = _as_array(found[0].array, rows), dict(found[0].failed)
        for each in found[1:]:
            if each.failed:
                there = array.is_valid().to_pylist()
                failed |= {row: why for row, why in each.failed.items() if row not in failed and not there[row]}
            array = pc.if_else(array.is_valid(), array, each.array)
        return Values(array).nulled(failed)


@dataclass(frozen=True, slots=True)
class Try:
    """The value, or null if it fails."""

    of: Node
    type: ice.IcebergType
    nullable: bool = True

    def evaluate(self, rows: Rows) -> Values:
        return Values(self.of.evaluate(rows).array)


Node = Column | Literal | BatchTime | Call | Logic | Case | Coalesce | Try


def parts(node: Node) -> Iterator[Node]:
    """Yield the node and every node in it."""
    yield node
    for each in _inside(node):
        yield from parts(each)


def depth(node: Node) -> int:
    """Return the depth of nested nodes."""
    return 1 + max((depth(each) for each in _inside(node)), default=0)


def _inside(node: Node) -> tuple[Node, ...]:
    match node:
        case Call():
            return node.arguments
        case Logic() | Coalesce():
            return node.parts
        case Case():
            return (*(each for branch in node.branches for each in branch), node.otherwise)
        case Try():
            return (node.of,)
        case _:
            return ()


def _as_array(column: pa.Array | pa.Scalar, rows: Rows) -> pa.Array:
    return pa.repeat(column, rows.batch.num_rows) if isinstance(column, pa.Scalar) else column
