"""Which wider column keeps every value of a type: the one rule of `frazil validate`, of a start and of writing.

It is about rows that are still to be written. What a reader may make of files that are written already is Iceberg's own
type promotion (`schema/compatibility`), which knows no other scale of a decimal.
"""

from __future__ import annotations

from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
)


def holds(value: IcebergType, column: IcebergType) -> bool:
    """Whether a column of the one type keeps every value of the other exactly; both without parts."""
    match value, column:
        case DecimalType(), DecimalType():
            whole, column_whole = value.precision - value.scale, column.precision - column.scale
            return column.scale >= value.scale and column_whole >= whole
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case _:
            return value == column
