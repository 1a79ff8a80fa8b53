"""Values of headers: read exactly, or refused; never guessed."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.formats.record_columns import header_values
from jobs.schema.declared import Primitive
from jobs.schema.parser import parse_schema


def declared(text: str) -> Primitive:
    kind = parse_schema(f"c {text}").fields[0].type
    assert isinstance(kind, Primitive)
    return kind


def read(text: str, *values: bytes | None, as_bytes: bool = False) -> list[Any]:
    """Each value, or the class of its refusal."""
    array, bad = header_values(declared(text), values, as_bytes=as_bytes)
    found: list[Any] = array.to_pylist()
    for each in bad:
        assert found[each.index] is None
        found[each.index] = each.error_class
    return found


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", b"", ""),
        ("string", "ü".encode(), "ü"),
        ("string", b"\xff", "invalid_utf8"),
        ("binary", b"\xff", b"\xff"),
        ("boolean", b"true", True),
        ("boolean", b"false", False),
        ("boolean", b"True", "wrong_type"),
        ("boolean", b"1", "wrong_type"),
        ("int", b"-2147483648", -(2**31)),
        ("int", b"2147483648", "out_of_range"),
        ("int", b"007", "wrong_type"),
        ("int", b"+7", "wrong_type"),
        ("int", b" 7", "wrong_type"),
        ("int", b"7.0", "wrong_type"),
        ("int", "٣".encode(), "wrong_type"),
        ("int", b"", "wrong_type"),
        ("long", b"9223372036854775807", 2**63 - 1),
        ("long", b"9223372036854775808", "out_of_range"),
        ("long", b"1" * 5000, "wrong_type"),
        ("double", b"1e400", "out_of_range"),
        ("double", b"1.5e3", 1500.0),
        ("double", b"NaN", "wrong_type"),
        ("float", b"16777217.000000000000000000001", 16777218.0),
        ("float", b"1e39", "out_of_range"),
        ("float", b"null", "wrong_type"),
        ("decimal(5,2)", b"123.45", Decimal("123.45")),
        ("decimal(5,2)", b"1.005", "precision_loss"),
        ("decimal(5,2)", b"1234", "out_of_range"),
        ("date", b"2026-02-28", date(2026, 2, 28)),
        ("date", b"2026-02-30", "bad_date"),
        ("date as epoch_days", b"1", date(1970, 1, 2)),
        ("timestamptz", b"2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamptz", b"2026-01-31T12:00:00", "bad_timestamp"),
        ("timestamptz as epoch_ms", b"1000", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("timestamptz as epoch_ms", b"1.5", "wrong_type"),
        ("uuid", b"00000000-0000-0000-0000-00000000000g", "bad_uuid"),
    ],
)
def test_text_is_read_as_json_carries_the_type(kind: str, value: bytes, expected: Any) -> None:
    assert read(kind, value) == [expected]
    # Beside others, and in bulk.
    assert read(kind, None, value, None, *([value] * 40)) == [None, expected, None, *([expected] * 40)]


@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
def test_what_was_written_is_read(number: int, double: float, text: str) -> None:
    assert read("long", str(number).encode()) == [number]
    assert read("string", text.encode()) == [text]
    assert read("double", struct.pack(">d", double), as_bytes=True) == [double]
    assert read("long", struct.pack(">q", number), as_bytes=True) == [number]


def test_bytes_have_the_width_of_the_type() -> None:
    assert read("int", b"\x00\x00\x00\x07", b"\x07", None, as_bytes=True) == [7, "wrong_length", None]
    assert read("boolean", b"\x01", b"\x02", as_bytes=True) == [True, "wrong_type"]
