"""Rows for tests of expressions: a column of every type, with values at the edges."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.expressions.expression import compile_expression
from jobs.records.schema.arrow_schema import rows_arrow_schema, rows_arrow_type

NOW = datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)
_field = ice.NestedField
SCHEMA = Schema(
    _field(1, "l", ice.LongType()),
    _field(2, "i", ice.IntegerType()),
    _field(3, "d", ice.DecimalType(12, 2)),
    _field(4, "w", ice.DecimalType(38, 2)),
    _field(5, "s", ice.StringType()),
    _field(6, "f", ice.DoubleType()),
    _field(7, "g", ice.FloatType()),
    _field(8, "tz", ice.TimestamptzType()),
    _field(9, "ts", ice.TimestampType()),
    _field(10, "u", ice.UUIDType()),
    _field(11, "day", ice.DateType()),
    _field(12, "b", ice.BooleanType()),
    _field(13, "st", ice.StructType(_field(14, "x", ice.IntegerType()))),
    _field(15, "ls", ice.ListType(16, ice.StringType(), False)),
    _field(17, "m", ice.MapType(18, ice.StringType(), 19, ice.LongType(), False)),
    _field(20, "at", ice.TimestamptzType(), required=True),
    _field(21, "t", ice.TimeType()),
    _field(22, "bytes", ice.BinaryType()),
)
UUID_TEXT = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
_FULL = {
    "l": 2**63 - 1,
    "i": 2**31 - 1,
    "d": Decimal("1.05"),
    "w": Decimal("999999999999999999999999999999999999.99"),
    "s": "abc",
    "f": float("nan"),
    "g": 0.5,
    "tz": datetime(2026, 3, 8, 2, 30, tzinfo=UTC),
    "ts": datetime(2026, 3, 8, 2, 30),
    "u": UUID(UUID_TEXT).bytes,
    "day": date(2024, 2, 29),
    "b": True,
    "st": {"x": 1},
    "ls": ["a", "b"],
    "m": [("k", 1)],
    "at": datetime(2026, 3, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "t": time(10, 11, 12),
    "bytes": b"\xff",
}
_USUAL = {
    **_FULL,
    "l": 7,
    "i": -2,
    "d": Decimal("-2.50"),
    "w": Decimal(3),
    "s": "12",
    "f": -0.0,
    "ts": datetime(2026, 11, 1, 1, 30),
    "b": False,
    "bytes": b"x",
}
ROWS = [_FULL, _USUAL, {**dict.fromkeys(_FULL), "at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)}]
"""One at the edges of types, a usual one, and one without values."""
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=rows_arrow_schema(SCHEMA))
FAILS = "fails"
"""Stands for the value of a row that fails."""


def values_of(text: str, batch: pa.RecordBatch = BATCH) -> list[object]:
    """Results of an expression for each row, `FAILS` where it fails; checks that they have the declared type."""
    expression = compile_expression(text, SCHEMA.fields)
    found = expression.evaluate(batch, NOW)
    assert found.values.type == rows_arrow_type(expression.type)
    failed = {each.row for each in found.failures}
    assert len(found.failures) == len(failed)
    assert not any(found.values[row].is_valid for row in failed)
    values: list[object] = [FAILS if row in failed else value for row, value in enumerate(found.values.to_pylist())]
    assert expression.nullable or None not in values
    return values
