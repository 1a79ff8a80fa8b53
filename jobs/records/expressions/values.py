"""Values of rows, and failed rows: kernels are applied to columns, and a bad row fails alone.

An Arrow kernel raises for a whole column. Only then the bad rows are searched, by bisecting the column for this kernel.
A failed row is null in everything that is computed from it.
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
"""Exceptions of kernels for bad rows; they include Arrow's exceptions, except those about memory."""


class RowFaults(Exception):
    """A kernel fails for some rows of a column; a kernel may raise it instead of Arrow's exceptions.

    Args:
        reasons: Reason for each failed row; at least one.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__()
        self.reasons: Mapping[int, str] = reasons


@dataclass(frozen=True, slots=True)
class Values:
    """A column of values, or one value for all rows, with the failed rows.

    Attributes:
        array: Values; null for failed rows.
        failed: Reason for each failed row.
    """

    array: Column
    failed: Mapping[int, str] = field(default_factory=dict)

    def nulled(self, failed: Mapping[int, str]) -> Values:
        """Return the values with further failures, null in these rows."""
        if not failed:
            return self
        array = self.array
        return Values(array if isinstance(array, pa.Scalar) else null_at(array, list(failed)), failed)

    def mask(self, count: int) -> Mask:
        """Return the mask of true rows; null is not true."""
        if isinstance(self.array, pa.Scalar):
            return np.full(count, self.array.as_py() is True)
        return pc.fill_null(self.array, False).to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class Fault:
    """Description, for dead letters, of a kernel's failure.

    Attributes:
        expression: Text of the failing part of the expression.
        why: Reason; None for the kernel's message.
    """

    expression: str
    why: str | None = None

    def message(self, said: str) -> str:
        """Return the sentence for one row."""
        return f"the expression `{self.expression}` fails: {self.why or said}"


def applied(kernel: Kernel, arguments: Sequence[Values], fault: Fault) -> Values:
    """Apply a kernel to columns; rows for which it fails, or that have failed before, are failures.

    Args:
        kernel: Kernel of columns, of which at least one is no single value. Raises pa.ArrowInvalid or RowFaults.
        arguments: Arguments of the kernel.
        fault: Description of a failure.
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
                # Otherwise values would be assigned to other rows.
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
        # A failed row is null from here on, even in the kernel's next attempt.
        rows = list(reasons)
        columns = [each if isinstance(each, pa.Scalar) else null_at(each, rows) for each in columns]


def null_at(array: pa.Array, rows: Sequence[int]) -> pa.Array:
    """Return the array with null in these rows."""
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
    """Return Arrow's message without the value that it may quote."""
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
