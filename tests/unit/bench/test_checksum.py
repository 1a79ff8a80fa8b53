from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bench.checksum import Checksum, checksum

SCHEMA = pa.schema(
    {"id": pa.string(), "amount": pa.decimal128(12, 2), "at": pa.timestamp("us", "UTC"), "partition": pa.int32()}
)
ROWS: list[dict[str, Any]] = [
    {"id": "a", "amount": Decimal("1.10"), "at": datetime(2026, 1, 31, tzinfo=UTC), "partition": 0},
    {"id": "", "amount": Decimal("-1.10"), "at": datetime(1969, 1, 31, tzinfo=UTC), "partition": -1},
    {"id": "Zürich", "amount": None, "at": None, "partition": None},
]


def of(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> Checksum:
    return checksum([pa.RecordBatch.from_pylist(list(rows), schema)])


def test_neither_order_nor_batches_nor_widths_of_types_count() -> None:
    wide = pa.schema(
        {
            "partition": pa.int64(),
            "at": pa.timestamp("us", "UTC"),
            "id": pa.large_string(),
            "amount": pa.decimal128(12, 2),
        }
    )
    whole = of(*ROWS)
    assert whole == of(*reversed(ROWS)) == of(*ROWS, schema=wide)
    assert whole == sum((of(row) for row in ROWS), Checksum())
    assert whole.rows == 3


@pytest.mark.parametrize(
    "change",
    [
        {"id": "b"},
        {"id": ""},
        {"id": None},
        {"amount": Decimal("1.11")},
        {"amount": None},
        {"at": datetime(2026, 1, 31, 0, 0, 0, 1, tzinfo=UTC)},
        {"partition": 1},
        {"partition": None},
    ],
)
def test_a_changed_value_counts(change: dict[str, Any]) -> None:
    assert of(ROWS[0] | change, *ROWS[1:]) != of(*ROWS)


def test_a_lost_a_doubled_and_a_replaced_row_count() -> None:
    found = {of(*ROWS[:2]), of(*ROWS, ROWS[0]), of(ROWS[0], ROWS[0], ROWS[2]), of(*ROWS)}
    assert len(found) == 4


def test_values_that_change_places_count() -> None:
    first, second = ROWS[0] | {"id": ROWS[1]["id"]}, ROWS[1] | {"id": ROWS[0]["id"]}
    assert of(first, second) != of(*ROWS[:2])


def test_values_that_change_columns_count() -> None:
    schema = pa.schema({"a": pa.string(), "b": pa.string()})
    assert of({"a": "x", "b": "y"}, schema=schema) != of({"a": "y", "b": "x"}, schema=schema)
    assert of({"a": "xy", "b": ""}, schema=schema) != of({"a": "x", "b": "y"}, schema=schema)


def test_no_rows() -> None:
    assert of() == checksum([]) == Checksum(0, 0)
