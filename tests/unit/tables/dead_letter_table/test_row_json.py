"""Rows as JSON: what is written of a row is read back as exactly that row."""

from __future__ import annotations

import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.dead_letter_table.row_json import row_decoder, rows_as_json, uncarried_column

MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
# Of each type a value as Arrow takes it for the storage of the column.
VALUES: list[tuple[ice.IcebergType, pa.DataType, st.SearchStrategy[Any]]] = [
    (ice.BooleanType(), pa.bool_(), st.booleans()),
    (ice.IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (ice.LongType(), pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (ice.FloatType(), pa.float32(), st.floats(width=32)),
    (ice.DoubleType(), pa.float64(), st.floats()),
    (
        ice.DecimalType(12, 2),
        pa.decimal128(12, 2),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    (ice.DateType(), pa.int32(), st.integers(-719_162, 2_932_896)),
    (ice.TimestampType(), pa.int64(), MICROS),
    (ice.TimestamptzType(), pa.int64(), MICROS),
    (ice.TimeType(), pa.int64(), st.integers(0, 86_399_999_999)),
    (ice.StringType(), pa.string(), st.text()),
    (ice.UUIDType(), pa.binary(16), st.uuids().map(lambda each: each.bytes)),
    (ice.BinaryType(), pa.binary(), st.binary()),
    (ice.FixedType(3), pa.binary(3), st.binary(min_size=3, max_size=3)),
]


def table(*more: NestedField) -> Schema:
    fields = [NestedField(n + 1, f"c{n}", kind, required=False) for n, (kind, _, _) in enumerate(VALUES)]
    return Schema(*fields, *more, NestedField(99, "_kafka_topic", ice.StringType(), required=False))


def read_back(values: list[bytes], schema: Schema) -> Decoded:
    return FORMATS["json"].reference(row_decoder(schema, KAFKA_COLUMNS)).decode(pa.array(values, pa.binary()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*(st.none() | values for _, _, values in VALUES)), min_size=1, max_size=4))
def test_every_type_is_read_back_exactly(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array(column, kind) for column, (_, kind, _) in zip(zip(*rows, strict=True), VALUES, strict=True)]
    names = [f"c{n}" for n in range(len(columns))]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(["t"] * len(rows))], [*names, "_kafka_topic"])
    decoded = read_back(rows_as_json(batch, table(), KAFKA_COLUMNS), table())
    assert decoded.failures == []
    for name, column, (_, kind, _) in zip(names, columns, VALUES, strict=True):
        found = decoded.rows.column(name)
        storage = found.storage if isinstance(found, pa.ExtensionArray) else found
        assert _same(storage.cast(kind).to_pylist(), column.to_pylist())


def _same(one: list[Any], other: list[Any]) -> bool:
    """Equal, a NaN to a NaN, and zeros by their signs."""
    pairs = list(zip(one, other, strict=True))
    return all(
        (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in pairs
    )


def test_nested_columns_are_read_back() -> None:
    inner = ice.StructType(
        NestedField(11, "at", ice.TimestamptzType(), required=True),
        NestedField(12, "u", ice.UUIDType(), required=False),
    )
    schema = Schema(
        NestedField(1, "id", ice.LongType(), required=True),
        NestedField(2, "s", inner, required=False),
        NestedField(3, "l", ice.ListType(13, ice.DoubleType(), element_required=False), required=False),
        NestedField(4, "m", ice.MapType(14, ice.StringType(), 15, inner, value_required=False), required=False),
    )
    struct = pa.struct([("at", pa.timestamp("us", "UTC")), ("u", pa.binary(16))])
    key = uuid.UUID(int=7)
    rows = [
        {"id": 1, "s": {"at": 5, "u": key.bytes}, "l": [1.5, None, math.inf], "m": [("k", {"at": 6, "u": None})]},
        {"id": 2, "s": None, "l": [], "m": [("gone", None)]},
    ]
    kinds = {"id": pa.int64(), "s": struct, "l": pa.list_(pa.float64()), "m": pa.map_(pa.string(), struct)}
    batch = pa.RecordBatch.from_arrays([pa.array([row[n] for row in rows], k) for n, k in kinds.items()], list(kinds))
    written = rows_as_json(batch, schema, KAFKA_COLUMNS)
    assert written[1] == b'{"id":2,"l":[],"m":{"gone":null}}'
    decoded = read_back(written, schema)
    assert decoded.failures == []
    first, second = decoded.rows.to_pylist()
    assert (first["s"]["at"].microsecond, first["s"]["u"], first["l"]) == (5, key.bytes, [1.5, None, math.inf])
    assert (first["m"][0][0], first["m"][0][1]["at"].microsecond) == ("k", 6)
    assert (second["s"], second["l"], second["m"]) == (None, [], [("gone", None)])


def test_a_column_that_the_table_has_no_more_is_refused() -> None:
    before = Schema(
        NestedField(1, "id", ice.LongType(), required=True), NestedField(2, "old", ice.LongType(), required=False)
    )
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([5, None])], ["id", "old"])
    values = rows_as_json(batch, before, KAFKA_COLUMNS)
    after = Schema(
        NestedField(1, "id", ice.LongType(), required=True), NestedField(3, "new", ice.LongType(), required=False)
    )
    decoded = read_back(values, after)
    assert [(each.row, each.error_class, each.field) for each in decoded.failures] == [(0, "unknown_field", "$.old")]
    assert decoded.rows.to_pylist() == [{"id": 2, "new": None}]


def test_a_column_that_cannot_be_written_is_named() -> None:
    numbers = ice.MapType(11, ice.LongType(), 12, ice.LongType(), value_required=False)
    assert uncarried_column(table(), KAFKA_COLUMNS) is None
    said = uncarried_column(table(NestedField(50, "by_number", numbers, required=False)), KAFKA_COLUMNS)
    assert said is not None
    assert said.startswith("by_number")
