"""Conversions of values to a column of another type of their kind: each value stays what it was, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.unscaled import exact_scaled
from jobs.records.formats.interface.problems import (
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_LENGTH,
    ValueProblem,
)
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import schema_text

_EXACT = Context(prec=76)
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Refused:
    """Values that a column does not hold.

    Attributes:
        indices: Indices of the values, ascending.
        error_class: Stable name of the reason.
        message: The reason, without a value.
    """

    indices: npt.NDArray[np.int64]
    error_class: str
    message: str


Conversion: TypeAlias = Callable[[pa.Array], tuple[pa.Array, list[Refused]]]
"""Converts values to the column's Arrow type; returns them with refused ones null, and the refused ones."""


def conversion(writer: ice.IcebergType, column: ice.IcebergType) -> Conversion | None:
    """Return how values of one type become those of a column without parts; None if the column never holds them.

    Args:
        writer: The values' type.
        column: The column's type, another one.
    """
    match writer, column:
        case ice.IntegerType(), ice.LongType():
            return _cast(pa.int64())
        case (ice.FloatType(), ice.DoubleType()) | (ice.IntegerType(), ice.DoubleType()):
            return _cast(pa.float64())
        case ice.LongType(), ice.IntegerType():
            return _within(-(2**31), 2**31 - 1, pa.int32(), column)
        case (ice.LongType(), ice.DoubleType()) | (ice.IntegerType() | ice.LongType(), ice.FloatType()):
            return _round_trip(column)
        case ice.DoubleType(), ice.FloatType():
            return _round_trip(column)
        case ice.IntegerType() | ice.LongType(), ice.DecimalType():
            return _to_decimal(pa.decimal128(19, 0), column)
        case ice.DecimalType(), ice.DecimalType():
            return _to_decimal(None, column)
        case ice.StructType(), ice.DecimalType() if _is_scaled(writer):
            return _scaled_to_decimal(column)
        case ice.FixedType(), ice.BinaryType():
            return _cast(pa.binary())
        case ice.BinaryType(), ice.FixedType():
            return _to_fixed(len(column))
        case _:
            return None


def _cast(kind: pa.DataType) -> Conversion:
    return lambda values: (values.cast(kind), [])


def _within(least: int, greatest: int, kind: pa.DataType, column: ice.IcebergType) -> Conversion:
    def convert(values: pa.Array) -> tuple[pa.Array, list[Refused]]:
        outside = pc.or_(pc.less(values, least), pc.greater(values, greatest))
        return _without(values, [(outside, OUT_OF_RANGE, _beyond(column))], lambda kept: kept.cast(kind))

    return convert


def _round_trip(column: ice.IcebergType) -> Conversion:
    """Convert floats to another width, each to the same number, infinity or NaN, or not at all."""
    kind = rows_arrow_type(column)

    def convert(values: pa.Array) -> tuple[pa.Array, list[Refused]]:
        narrow = values.cast(kind, safe=False)
        if pa.types.is_integer(values.type):
            # A float beyond 64 bits never comes back unchanged; smaller ones are compared as decimals.
            exact = pa.decimal128(38, 0)
            differs = pc.not_equal(narrow.cast(pa.float64()).cast(exact, safe=False), values.cast(exact))
            return _without(narrow, [(differs, PRECISION_LOSS, _inexact(column))], lambda kept: kept)
        beyond = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(values)))
        same = pc.or_(pc.equal(narrow.cast(values.type), values), pc.and_(pc.is_nan(narrow), pc.is_nan(values)))
        inexact = pc.and_(pc.invert(same), pc.invert(beyond))
        reasons = [(beyond, OUT_OF_RANGE, _beyond(column)), (inexact, PRECISION_LOSS, _inexact(column))]
        return _without(narrow, reasons, lambda kept: kept)

    return convert


def _to_decimal(first: pa.DataType | None, column: ice.DecimalType) -> Conversion:
    target = rows_arrow_type(column)
    scale = column.scale

    def convert(values: pa.Array) -> tuple[pa.Array, list[Refused]]:
        given = values if first is None else values.cast(first)
        if given.type.precision + max(0, scale - given.type.scale) <= _MOST_DIGITS:
            # Arrow checks each value, and no product wraps around; values that it refuses are found below.
            with suppress(pa.ArrowInvalid):
                return given.cast(target), []
        # 76 digits hold both scales and every digit of the greatest number of 38 digits.
        fine = max(scale, given.type.scale)
        wide = given.cast(pa.decimal256(76, fine))
        cut = wide.cast(pa.decimal256(76, scale), safe=False)
        inexact = pc.not_equal(cut.cast(pa.decimal256(76, fine)), wide)
        greatest = pa.scalar(Decimal(10**column.precision - 1).scaleb(-scale, _EXACT), pa.decimal256(76, scale))
        beyond = pc.greater(pc.abs(cut), greatest)
        reasons = [
            (beyond, OUT_OF_RANGE, f"{_needs(column)}, found a number with too many digits before the point"),
            (
                pc.and_(inexact, pc.invert(beyond)),
                PRECISION_LOSS,
                f"{_needs(column)}, found a number with more than {scale} digits after the point",
            ),
        ]
        return _without(cut, reasons, lambda kept: kept.cast(target))

    return convert


def _is_scaled(writer: ice.StructType) -> bool:
    """Return whether structs are Debezium's VariableScaleDecimal: decimals each with its own scale."""
    return {each.name: str(each.field_type) for each in writer.fields} == {"scale": "int", "value": "binary"}


def _scaled_to_decimal(column: ice.DecimalType) -> Conversion:
    reasons = {
        WRONG_LENGTH: "needs the bytes of a decimal, found none",
        OUT_OF_RANGE: f"{_needs(column)}, found a number with too many digits before the point",
        PRECISION_LOSS: f"{_needs(column)}, found a number with more than {column.scale} digits after the point",
    }

    def convert(values: pa.Array) -> tuple[pa.Array, list[Refused]]:
        found: list[Decimal | None] = []
        bad: dict[str, list[int]] = {}
        for index, each in enumerate(values.to_pylist()):
            found.append(None)
            try:
                if each is not None:
                    data = b"" if each["scale"] is None else each["value"]
                    found[-1] = exact_scaled(each["scale"] or 0, data or b"", column)
            except ValueProblem as problem:
                bad.setdefault(problem.error_class, []).append(index)
        refused = [Refused(np.array(rows, np.int64), name, reasons[name]) for name, rows in bad.items()]
        return pa.array(found, rows_arrow_type(column)), refused

    return convert


def _to_fixed(length: int) -> Conversion:
    def convert(values: pa.Array) -> tuple[pa.Array, list[Refused]]:
        wrong = pc.not_equal(pc.binary_length(values), length)
        message = f"needs {length} bytes, found another number of them"
        return _without(values, [(wrong, WRONG_LENGTH, message)], lambda kept: kept.cast(pa.binary(length)))

    return convert


def _without(
    values: pa.Array, reasons: list[tuple[pa.Array, str, str]], finish: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, list[Refused]]:
    refused: list[Refused] = []
    for bad, error_class, message in reasons:
        indices = np.flatnonzero(pc.fill_null(bad, False).to_numpy(zero_copy_only=False)).astype(np.int64)
        if len(indices):
            refused.append(Refused(indices, error_class, message))
            values = pc.if_else(pc.fill_null(bad, False), pa.scalar(None, values.type), values)
    return finish(values), refused


def _needs(column: ice.IcebergType) -> str:
    return f"needs {schema_text(column)}"


def _beyond(column: ice.IcebergType) -> str:
    return f"{_needs(column)}, found a number beyond its range"


def _inexact(column: ice.IcebergType) -> str:
    return f"{_needs(column)}, found a number that it cannot store exactly"
