"""The formats that a stream's file may name: each is known, takes the file's options, and decodes."""

from __future__ import annotations

import pickle
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.values.decode import Decode
from jobs.config.values.value_format import FormatName
from jobs.records.formats.connect_types import LOGICAL_TYPES, decimal_scale
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, resolved
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.primitive.block import COLUMN_TYPES
from jobs.records.formats.record_columns import header_values
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema
from tests.helpers.tasks import stream_spec

SCHEMA = "id string not null, n long, at timestamptz as epoch_ms"


def test_the_file_may_name_each_format_that_is_known_and_no_other() -> None:
    # One's own is named with the decoder that it is.
    assert {*get_args(FormatName), "own"} == set(FORMATS)
    assert all(name == each.name for name, each in FORMATS.items())


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "own"])
def test_both_decoders_of_a_format_give_the_rows_of_the_resolved_schema(name: str) -> None:
    schema = f"value {COLUMN_TYPES[name]}" if name in COLUMN_TYPES else SCHEMA
    rows = Decode(value=name, schema=schema).declared  # type: ignore[arg-type, call-arg]
    assert rows is not None
    assert rows.decoder.kind == name
    # The probe names no schema, so nothing is looked up.
    spec = replace(rows.decoder, schemas=object()) if FORMATS[name].registry_kind else rows.decoder
    for make in (FORMATS[name].reference, FORMATS[name].block):
        probed = make(spec).decode(pa.array([FORMATS[name].probe], pa.binary()))
        assert probed.rows.schema.names == rows.schema.column_names


@pytest.mark.parametrize("unknown_fields", ["ignore", "fail"])
def test_the_decoders_are_given_the_options_of_the_file(unknown_fields: str) -> None:
    decoder = stream_spec(SCHEMA, unknown_fields=unknown_fields).resolved.decoder
    for make in (FORMATS["json"].reference, FORMATS["json"].block):
        odd = make(decoder).decode(pa.array([b'{"id": "a", "x": 1}'], pa.binary()))
        assert len(odd.failures) == (unknown_fields == "fail")


def test_json_finds_a_record_with_a_field_that_is_not_declared() -> None:
    spec = DecoderSpec("json", DeclaredSchema("id string, o struct<a int>"))
    values = pa.array([b'{"o": {"b": 1.5}}', b'{"x": null}', b'{"x": "y"}'], pa.binary())
    found = FORMATS["json"].unknown_fields(spec, values, [0, 1, 2], ["$.x", "$.o.b", "$.gone"])
    assert {path: tuple(each) for path, each in found.items()} == {
        "$.x": (1, "$", "x string"),
        "$.o.b": (0, "$.o", "b double"),
    }


def test_what_tasks_are_told_travels_pickled() -> None:
    made = resolved(DecoderSpec("json", DeclaredSchema(SCHEMA), {"unknown_fields": "fail"}))
    again = pickle.loads(pickle.dumps(made))
    assert (again.schema, again.decoder) == (made.schema, made.decoder)


@pytest.mark.parametrize("name", LOGICAL_TYPES)
def test_numbers_count_something_and_nothing_else_does(name: str) -> None:
    logical = LOGICAL_TYPES[name]
    assert (logical.unit in ("days", "ms", "us", "ns")) == (logical.carrier in ("int32", "int64"))
    assert (logical.unit == "days") == (logical.type == "date")


@pytest.mark.parametrize(
    ("scale", "expected"), [("0", 0), ("2", 2), ("38", 38), ("39", None), ("-1", None), ("x", None), ("٢", None)]
)
def test_the_scale_is_one_that_a_decimal_can_have(scale: str, expected: int | None) -> None:
    assert decimal_scale({"scale": scale}) == expected
    assert decimal_scale({}) is None


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
