"""Values of rows with the rows that failed: kernels applied to columns, so that a row at fault fails alone.

A kernel of Arrow raises for a whole column. Only then are the rows at fault sought, by halving the column for this one
kernel. A row that has failed is null in everything that is computed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = "pa.Array | pa.Scalar"
Kernel: TypeAlias = Callable[..., pa.Array]
Mask: TypeAlias = npt.NDArray[np.bool_]

FAILURES = (ValueError, ArithmeticError, TypeError, LookupError, NotImplementedError)
"""What kernels raise for rows: Arrow's exceptions, but for those of memory, are among them."""


class RowFaults(Exception):
    """Rows of a column that a kernel has no value for, each with the reason; a kernel may raise it instead of Arrow's.

    Args:
        reasons: By row; at least one.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__()
        self.reasons: Mapping[int, str] = reasons


@dataclass(frozen=True, slots=True)
class Values:
    """A column of values, or one value for all rows, and which rows have failed.

    Attributes:
        array: Null where a row failed.
        failed: The reason of each row that failed.
    """

    array: Column
    failed: Mapping[int, str] = field(default_factory=dict)

    def nulled(self, failed: Mapping[int, str]) -> Values:
        """The same with these failures, null there."""
        if not failed:
            return self
        array = self.array
        return Values(array if isinstance(array, pa.Scalar) else null_at(array, list(failed)), failed)

    def mask(self, count: int) -> Mask:
        """Which rows are true, of booleans; null is not."""
        if isinstance(self.array, pa.Scalar):
            return np.full(count, self.array.as_py() is True)
        return pc.fill_null(self.array, False).to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a dead letter says of a row that a kernel fails for.

    Attributes:
        expression: The part of the expression, as it is written.
        why: The reason; None: what the kernel says.
    """

    expression: str
    why: str | None = None

    def message(self, said: str) -> str:
        """The sentence for one row."""
        return f"the expression `{self.expression}` fails: {self.why or said}"


def applied(kernel: Kernel, arguments: Sequence[Values], fault: Fault) -> Values:
    """What a kernel gives for each row; one that it fails for, or that has failed before, is a failure.

    Args:
        kernel: Of columns; at least one of them is no single value. Raises pa.ArrowInvalid, or RowFaults.
        arguments: What it gets.
        fault: Tells of a failure.
    """
    failed: dict[int, str] = {}
    for each in arguments:
        for row, message in each.failed.items():
            failed.setdefault(row, message)
    columns = [each.array for each in arguments]
    count = _count(columns)
    while True:
        try:
            result = kernel(*columns)
            if not isinstance(result, pa.Scalar) and len(result) != count:
                # Otherwise later values would belong to other rows.
                raise RuntimeError(f"`{fault.expression}` has {len(result)} values for {count} rows")
            return Values(result).nulled(failed)
        except RowFaults as problem:
            reasons = problem.reasons
        except FAILURES:
            reasons = _reasons(kernel, columns)
        if all(row in failed for row in reasons):
            raise RuntimeError(f"`{fault.expression}` fails for rows, and for none of them alone")
        for row, said in reasons.items():
            failed.setdefault(row, fault.message(said))
        # A row at fault is null from here on, also in what the kernel looks at next.
        rows = list(reasons)
        columns = [each if isinstance(each, pa.Scalar) else null_at(each, rows) for each in columns]


def null_at(array: pa.Array, rows: Sequence[int]) -> pa.Array:
    """The array with null in these rows."""
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    if not pa.types.is_nested(array.type):
        return pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))
    indices = pa.array(np.arange(len(array)), mask=mask)
    return array.take(indices)


def _count(columns: Sequence[Column]) -> int:
    return next(len(each) for each in columns if not isinstance(each, pa.Scalar))


def _reasons(kernel: Kernel, columns: Sequence[Column]) -> dict[int, str]:
    count = _count(columns)
    found: dict[int, str] = {}
    pending = [(0, count)]
    while pending:
        start, stop = pending.pop()
        part = [each if isinstance(each, pa.Scalar) else each.slice(start, stop - start) for each in columns]
        try:
            kernel(*part)
        except RowFaults as problem:
            found |= {start + row: said for row, said in problem.reasons.items()}
        except FAILURES as problem:
            if stop - start == 1:
                found[start] = _said(problem)
            else:
                middle = (start + stop) // 2
                pending += [(start, middle), (middle, stop)]
    return found


def _said(problem: Exception) -> str:
    """What Arrow says, without the value, which it may quote."""
    text = str(problem).lower()
    for words, said in (
        ("divide by zero", "division by zero"),
        ("overflow", "the result is beyond its type"),
        ("not in range", "the number has no exact value in that type"),
        ("out of bounds", "the number is beyond its type"),
        ("truncated", "the number has no exact value in that type"),
        ("data loss", "the number has more places than its type"),
        ("precision", "the result is beyond its type"),
        ("fit in", "the result is beyond its type"),
        ("negative", "the number is negative"),
        ("logarithm", "the number is not positive"),
        ("utf8", "the bytes are no UTF-8"),
        ("utf-8", "the bytes are no UTF-8"),
        ("ambiguous", "the time is ambiguous in that zone"),
        ("doesn't exist", "the time does not exist in that zone"),
    ):
        if words in text:
            return said
    return "it has no value for this row"
