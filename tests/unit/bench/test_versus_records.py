"""The records of the comparison: what the stream declares, whole and distinct, the same each time."""

from __future__ import annotations

import msgspec
import pytest

from bench.versus.records import Size, payments, schema_text
from jobs.schema.parser import parse_schema

SIZES: dict[Size, range] = {"small": range(150, 180), "1k": range(950, 1100)}


@pytest.mark.parametrize("size", list(SIZES))
def test_they_are_of_their_size_distinct_and_summed(size: Size) -> None:
    (chunk,) = payments(size, 500)
    decoded = [msgspec.json.decode(value) for value in chunk.values]
    assert len({record["id"] for record in decoded}) == 500
    assert sum(round(100 * record["amount"]) for record in decoded) == chunk.cents
    assert sum(map(len, chunk.values)) // 500 in SIZES[size]
    assert [record["payer"].encode() for record in decoded] == chunk.keys
    times = [record["created_at"] for record in decoded]
    assert times == sorted(times) and times[-1] == "2026-01-04T00:00:00.000Z"


@pytest.mark.parametrize("size", list(SIZES))
def test_they_have_what_the_stream_declares(size: Size) -> None:
    (chunk,) = payments(size, 1)
    declared = parse_schema(schema_text(size))
    assert set(msgspec.json.decode(chunk.values[0])) == {field.name for field in declared.fields}


def test_the_same_numbers_are_the_same_payments() -> None:
    assert [chunk.values for chunk in payments("small", 100)] == [chunk.values for chunk in payments("small", 100)]
