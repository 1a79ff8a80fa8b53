"""One set of wider columns: what validate and a start allow is what rows are written to, over all pairs of types."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.compatibility import disagreements
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema
from jobs.tables.write.projection import ProjectionError
from jobs.tables.write.table_fit import TableFit

AT = datetime(9999, 12, 31, 23, 59, 59, 999_999)
DIGITS = [(1, 0), (1, 1), (3, 2), (5, 2), (7, 2), (7, 4), (9, 2), (18, 0), (18, 9), (20, 4), (38, 0), (38, 2), (38, 38)]


def ends(precision: int, scale: int) -> list[Any]:
    nines = (9,) * precision
    return [None, Decimal((0, nines, -scale)), Decimal((1, nines, -scale)), Decimal((0, (1,), -scale))]


DECLARED: dict[str, list[Any]] = {
    "boolean": [None, True, False],
    "int": [None, 2**31 - 1, -(2**31)],
    "long": [None, 2**63 - 1, -(2**63)],
    "float": [None, 3.4028234663852886e38, -1.401298464324817e-45, -0.0],
    "double": [None, 1.7976931348623157e308, 5e-324, 0.1],
    "date": [None, date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [None, AT, datetime(1, 1, 1)],
    "timestamptz": [None, AT.replace(tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
    "string": [None, "", "é😀"],
    "binary": [None, b"", b"\xff"],
    "time": [None, time(0), time(23, 59, 59, 999_999)],
    "uuid": [None, UUID(int=0), UUID(int=2**128 - 1)],
    "fixed(3)": [None, b"\0\0\0", b"\xff\0a"],
    **{f"decimal({precision},{scale})": ends(precision, scale) for precision, scale in DIGITS},
}
COLUMNS: list[PrimitiveType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimeType(), TimestampType()),
    *(TimestamptzType(), StringType(), BinaryType(), UUIDType(), FixedType(3)),
    *(DecimalType(precision, scale) for precision, scale in DIGITS),
]


def rows(declared: str, values: list[Any]) -> pa.RecordBatch:
    stored = [value.bytes if isinstance(value, UUID) else value for value in values]
    return pa.RecordBatch.from_pylist([{"c": value} for value in stored], schema=arrow_schema(parse_schema(declared)))


@pytest.mark.parametrize("declared", DECLARED)
def test_what_the_check_allows_is_written_and_nothing_else(declared: str) -> None:
    values = DECLARED[declared]
    for column in COLUMNS:
        schema = Schema(NestedField(1, "c", column))
        allowed = not disagreements(iceberg_schema(parse_schema(f"c {declared}")), schema, NO_KAFKA_COLUMNS)
        batch = rows(f"c {declared}", values)
        if allowed:
            assert TableFit(schema).apply(batch).column("c").to_pylist() == values, column
        else:
            with pytest.raises(ProjectionError):
                TableFit(schema).apply(batch)


def test_of_decimals_those_that_keep_every_digit_are_allowed() -> None:
    sizes = [(precision, scale) for precision in range(1, 13) for scale in range(precision + 1)]
    for (precision, scale), (wide, places) in itertools.product(sizes, sizes):
        declared = iceberg_schema(parse_schema(f"c decimal({precision},{scale})"))
        schema = Schema(NestedField(1, "c", DecimalType(wide, places)))
        # In units of the column's last digit: the least value is a whole number of them, the greatest has its digits.
        greatest = Decimal(10**precision - 1).scaleb(places - scale)
        least = Decimal(1).scaleb(places - scale)
        keeps = least == int(least) and greatest < 10**wide
        assert (not disagreements(declared, schema, NO_KAFKA_COLUMNS)) == keeps, (precision, scale, wide, places)
