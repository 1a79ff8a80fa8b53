"""Custom code as a step: a function of an installed package, from an Arrow batch to a batch with the same rows.

The function gets the rows of a block as a `pyarrow.RecordBatch` and returns a batch with as many rows, in their order;
and optionally a mapping from the index of a row that it refuses to the reason: `return batch, {3: "no such shop"}`. Its
columns are those that it returns for a batch without rows, which it gets when the spec is validated.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import OWN_CODE_FAILED, OWN_CODE_REFUSED, ValueProblem
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.transforms.columns import Columns, TransformProblem, column
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

_ANSWER = "a pyarrow.RecordBatch, or one with a mapping from rows to reasons"


@dataclass(frozen=True, slots=True)
class OwnCode(Transform):
    """A function of an installed package.

    Attributes:
        function: `package.module:function`.
    """

    name: ClassVar[str] = "python"
    function: str

    def output(self, columns: Columns) -> Columns:
        """Return the columns that the function returns for a batch without rows.

        Raises:
            TransformProblem: The function does not exist, raises, or returns columns that no table can have.
        """
        function = loaded(self.function)
        try:
            made, _ = _answer(function(_empty(columns)))
            return columns_of(made.schema, columns)
        except TransformProblem:
            raise
        except Exception as problem:
            why = f"raises {type(problem).__name__} for a batch without rows: {problem}"
            raise TransformProblem(f"the function `{self.function}` {why}") from None

    def apply(self, rows: Rows) -> Applied:
        """Return the function's rows; a row that it raises for, alone, fails, and so does one that it refuses.

        Raises:
            ValueProblem: The function raises for these rows, or returns other columns or another number of rows.
            OSError, MemoryError: The function raises that.
        """
        into = rows.columns.behind(self)
        try:
            made, refused = _answer(loaded(self.function)(rows.batch))
        except (OSError, MemoryError):
            # The machine or the network failed, which is the fault of no record.
            raise
        except Exception as problem:
            raise self._problem(f"raised {type(problem).__name__}: {problem}") from None
        if made.num_rows != rows.count:
            raise self._problem(f"gave another number of rows: {made.num_rows} of {rows.count}")
        failures = [RowFailure(row, OWN_CODE_REFUSED, f"the function `{self.function}` refuses the row: {why}")
                    for row, why in sorted(refused.items())]  # fmt: skip
        if any(not 0 <= each.row < rows.count for each in failures):
            raise self._problem("refused a row that it was not given")
        return settled(rows.with_batch(into, self._arrays(made, into, set(refused))), failures)

    def _arrays(self, made: pa.RecordBatch, into: Columns, refused: set[int]) -> list[pa.Array]:
        if made.schema.names != list(into.names):
            raise self._problem("gave other columns than for a batch without rows")
        arrays: list[pa.Array] = []
        for field, array in zip(into.arrow, made.columns, strict=True):
            if array.type != field.type:
                raise self._problem(f"gave another type than for a batch without rows in the column {field.name}")
            if not field.nullable and array.null_count and not set(_nulls(array)) <= refused:
                raise self._problem(f"gave null in the column {field.name}, which is not nullable")
            arrays.append(array)
        return arrays

    def _problem(self, why: str) -> ValueProblem:
        return ValueProblem(OWN_CODE_FAILED, f"the function `{self.function}` {why}")

    def prepare(self) -> None:
        loaded(self.function)


@lru_cache(maxsize=64)
def loaded(reference: str) -> Callable[[pa.RecordBatch], Any]:
    """Return the function of a reference.

    Raises:
        TransformProblem: No package that is installed here has it.
    """
    module, _, name = reference.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as problem:
        raise TransformProblem(
            f"the module `{module}` cannot be imported here ({type(problem).__name__}: {problem}); install its package "
            "wherever frazil runs"
        ) from None
    function = getattr(found, name, None)
    if not callable(function):
        raise TransformProblem(f"there is no function `{name}` in the module `{module}`")
    version_of(reference)
    return function


@lru_cache(maxsize=64)
def version_of(reference: str) -> str:
    """Return the installed package of a reference, with its version: another version may give other rows.

    Raises:
        TransformProblem: The reference belongs to none.
    """
    top = reference.partition(":")[0].partition(".")[0]
    names = sorted(set(importlib.metadata.packages_distributions().get(top, ())))
    if not names:
        raise TransformProblem(
            f"the module `{top}` belongs to no installed package, so changes of its code go unnoticed; give it a "
            "pyproject.toml with a version and install it"
        )
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def _answer(given: object) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    batch, refused = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(batch, pa.RecordBatch) or not isinstance(refused, Mapping):
        raise TypeError(f"it gives no {_ANSWER.removeprefix('a ')}")
    return batch, {int(row): str(why) for row, why in refused.items()}


def _empty(columns: Columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=columns.arrow)


def _nulls(array: pa.Array) -> list[int]:
    return [row for row, null in enumerate(array.is_null().to_pylist()) if null]


_PRIMITIVES: dict[pa.DataType, ice.PrimitiveType] = {
    rows_arrow_type(each): each
    for each in (
        *(ice.BooleanType(), ice.IntegerType(), ice.LongType(), ice.FloatType(), ice.DoubleType(), ice.DateType()),
        *(ice.TimeType(), ice.TimestampType(), ice.TimestamptzType(), ice.StringType(), ice.BinaryType()),
    )
}


def columns_of(schema: pa.Schema, before: Columns) -> Columns:
    """Return the columns of a schema. A column that existed with this Arrow type keeps its own type: a uuid is 16
    bytes.

    Raises:
        TransformProblem: Rows cannot have a type, or two columns have one name.
    """
    known = dict(zip(before.names, before.fields, strict=True))
    fields: list[ice.NestedField] = []
    for field in schema:
        old = known.get(field.name)
        kept = old is not None and rows_arrow_type(old.field_type) == field.type
        kind = old.field_type if old is not None and kept else _type(field.type, field.name)
        fields.append(column(field.name, kind, required=not field.nullable))
    return Columns.of(fields)


def _type(kind: pa.DataType, name: str) -> ice.IcebergType:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return ice.FixedType(kind.byte_width)
    raise TransformProblem(
        f"the column '{name}' has the Arrow type {kind}, which no row has; known are those of the schema "
        "text, with times in microseconds and texts as string, and structs, lists and maps as they come from the row"
    )
