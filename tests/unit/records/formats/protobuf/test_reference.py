"""The reference decoder of Protobuf: what a record means, and why one is refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.protobuf.block import protobuf_block
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.options import ProtobufRules
from jobs.records.formats.protobuf.reference import ProtobufReferenceDecoder, protobuf_reference
from jobs.records.formats.protobuf.schema import message_tree
from tests.helpers.protobuf_records import filled, messages
from tests.unit.records.formats.protobuf.test_schema import ALL, IMPORTS

PROTO2 = WriterSchema(
    "message A { required string id = 1; optional int32 n = 2 [default = 7]; optional Kind kind = 3; repeated int32 "
    "many = 4; repeated int32 packed = 5 [packed = true]; enum Kind { SOME = 3; OTHER = 5; } }"
)
EVERYTHING = WriterSchema(ALL)
MIXED = WriterSchema(
    f'syntax = "proto3"; {IMPORTS} message A {{ int32 n = 1; string s = 2; bool b = 3; B in = 4; repeated B many = 5; '
    "map<string, B> by = 6; oneof k { int64 left = 7; string right = 8; } Kind kind = 9; repeated sint32 list = 10; "
    "google.protobuf.Timestamp at = 11; google.protobuf.Struct json = 12; float f = 13; uint32 u = 14; "
    "confluent.type.Decimal price = 15 [(confluent.field_meta).params = {key: 'precision', value: '5'}, "
    "(confluent.field_meta).params = {key: 'scale', value: '2'}]; google.type.Date day = 16; "
    "google.type.TimeOfDay time = 17; google.protobuf.Value any = 18; } "
    "message B { int32 x = 1; optional int32 y = 2; } enum Kind { NONE = 0; SOME = 2; }"
)


def decode(schema: WriterSchema, *values: bytes, **options: Any) -> Decoded:
    """By the reference, once the block decoder has given the same."""
    block = pa.array(values, pa.binary())
    expected = protobuf_reference(schema, options).decode(block)
    decoder = protobuf_block(schema, options)
    decoder._smallest = 1  # pyright: ignore[reportPrivateUsage]
    decoded = decoder.decode(block)
    assert repr(decoded.rows.to_pylist()) == repr(expected.rows.to_pylist())
    assert (decoded.failures, decoded.unknown_fields) == (expected.failures, expected.unknown_fields)
    return expected


def row(schema: WriterSchema, value: bytes, **options: Any) -> dict[str, Any]:
    decoded = decode(schema, value, **options)
    assert decoded.failures == []
    return decoded.rows.to_pylist()[0]


def refused(schema: WriterSchema, value: bytes, **options: Any) -> tuple[str, str, str | None]:
    (failure,) = decode(schema, value, **options).failures
    return failure.error_class, failure.message, failure.field


def made(schema: WriterSchema, **fields: Any) -> bytes:
    kind: Any = GetMessageClass(message_of(schema))
    return kind(**fields).SerializeToString()


def test_an_empty_value_has_every_field_at_its_default() -> None:
    found = row(MIXED, b"")
    assert {name for name, value in found.items() if value is None} == {
        *("in", "left", "right", "at", "json", "price", "day", "time", "any"),
    }
    assert (found["n"], found["s"], found["b"], found["kind"], found["f"]) == (0, "", False, "NONE", 0.0)
    assert (found["many"], found["by"], found["list"]) == ([], [], [])


def test_proto2_knows_what_is_not_there() -> None:
    only = made(PROTO2, id="")
    assert row(PROTO2, only) == {"id": "", "n": None, "kind": None, "many": [], "packed": []}
    defaults = {"optional.for.proto2": False}
    assert row(PROTO2, only, **defaults) == {"id": "", "n": 7, "kind": "SOME", "many": [], "packed": []}
    assert refused(PROTO2, b"") == ("missing_field", "needs string, found no such field", "$.id")
    # A closed enum, and numbers that are packed or not, whatever the schema says.
    assert refused(PROTO2, only + b"\x18\x04")[0] == "out_of_range"
    assert row(PROTO2, only + b"\x22\x02\x01\x02\x20\x03\x28\x04\x2a\x01\x05")["many"] == [1, 2, 3]
    assert row(PROTO2, only + b"\x22\x02\x01\x02\x20\x03\x28\x04\x2a\x01\x05")["packed"] == [4, 5]


def test_the_last_one_wins_and_messages_are_merged() -> None:
    assert row(MIXED, b"\x08\x01\x08\x02")["n"] == 2
    assert row(MIXED, b"\x22\x02\x08\x01\x22\x02\x10\x02")["in"] == {"x": 1, "y": 2}
    both = row(MIXED, b"\x38\x01\x42\x01a")
    assert (both["left"], both["right"]) == (None, "a")
    both = row(MIXED, b"\x42\x01a\x38\x00")
    assert (both["left"], both["right"]) == (0, None)
    assert row(MIXED, b"\x32\x05\x0a\x01a\x12\x00\x32\x07\x0a\x01a\x12\x02\x08\x05")["by"] == [
        ("a", {"x": 5, "y": None})
    ]
    # An entry of a map without key and value has the defaults of both.
    assert row(MIXED, b"\x32\x00")["by"] == [("", {"x": 0, "y": None})]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\x08\x80\x80\x80\x80\x08", ("out_of_range", "needs int32, found a number beyond its range", "$.n")),
        (b"\x08\xff\xff\xff\xff\x0f", ("out_of_range", "needs int32, found a number beyond its range", "$.n")),
        (b"\x70\x80\x80\x80\x80\x10", ("out_of_range", "needs uint32, found a number beyond its range", "$.u")),
        (
            b"\x52\x05\x80\x80\x80\x80\x20",
            ("out_of_range", "needs sint32, found a number beyond its range", "$.list[0]"),
        ),
        (b"\x48\x01", ("out_of_range", "needs a number of the enum Kind, found 1", "$.kind")),
        (b"\x12\x01\xff", ("invalid_utf8", "needs UTF-8, found 0xff at byte 0 (invalid start byte)", "$.s")),
        (
            b"\x32\x03\x0a\x01\xff",
            ("invalid_utf8", "needs UTF-8, found 0xff at byte 0 (invalid start byte)", "$.by[...]"),
        ),
        (b"\x0a\x01a", ("wrong_type", "needs int32, found bytes with a length", "$.n")),
        (b"\x0d\0\0\0\0", ("wrong_type", "needs int32, found 4 bytes", "$.n")),
        (b"\x0b\x0c", ("wrong_type", "needs int32, found a group", "$.n")),
        (b"\x10\x01", ("wrong_type", "needs string, found a varint", "$.s")),
        (b"\x21\0\0\0\0\0\0\0\0", ("wrong_type", "needs B, found 8 bytes", "$.in")),
        (b"\x2a\x00\x2a\x03\x0a\x01a", ("wrong_type", "needs int32, found bytes with a length", "$.many[1].x")),
        (b"\x32\x05\x12\x03\x0a\x01a", ("wrong_type", "needs int32, found bytes with a length", "$.by[...].x")),
        (b"\x5a\x02\x10\x01", ("precision_loss", "needs timestamptz in microseconds, found 1 nanos", "$.at")),
        (
            b"\x5a\x06\x10\x80\x94\xeb\xdc\x03",
            ("bad_timestamp", "needs nanos from 0 to 999999999, found 1000000000", "$.at"),
        ),
        (
            b"\x5a\x07\x08\x80\x83\xd1\xff\xaf\x07",
            ("out_of_range", "needs timestamptz in the years 0001 to 9999, found 253402300800 seconds", "$.at"),
        ),
        (
            b"\x82\x01\x03\x08\xe8\x0f",
            ("bad_date", "needs a day of the calendar, found year 2024, month 0, day 0", "$.day"),
        ),
        (
            b"\x8a\x01\x02\x08\x18",
            ("bad_time", "needs a time of day, found hours 24, minutes 0, seconds 0, nanos 0", "$.time"),
        ),
        (
            b"\x7a\x05\x0a\x01\x05\x18\x03",
            ("precision_loss", "needs decimal(5,2), found '0.005' with more than 2 digits after the point", "$.price"),
        ),
        (
            b"\x7a\x04\x0a\x02\x7f\xff",
            ("out_of_range", "needs decimal(5,2), found '32767' with too many digits before the point", "$.price"),
        ),
        (
            b"\x7a\x0a\x18\x80\x80\x80\x80\x80\x80\x80\x80\x10",
            ("out_of_range", "needs int32, found a number beyond its range", "$.price"),
        ),
        (b"\x92\x01\x09\x11\0\0\0\0\0\0\xf8\x7f", ("out_of_range", "needs a number of JSON, found nan", "$.any")),
        (
            b"\x92\x01\x02\x10\x00",
            ("wrong_type", "needs google.protobuf.Value, found a field that it does not have", "$.any"),
        ),
        (b"\x08", ("malformed_protobuf", "needs a message of type A, found 1 bytes that are none", None)),
        (b"\x12\x05a", ("malformed_protobuf", "needs a message of type A, found 3 bytes that are none", None)),
        (b"\x0c", ("malformed_protobuf", "needs a message of type A, found 1 bytes that are none", None)),
        (b"\0\0", ("malformed_protobuf", "needs a message of type A, found 2 bytes that are none", None)),
        (
            b"\x08" + b"\xff" * 10 + b"\x01",
            ("malformed_protobuf", "needs a message of type A, found 12 bytes that are none", None),
        ),
        (
            b"\x12" + b"\xff" * 9 + b"\x01",
            ("malformed_protobuf", "needs a message of type A, found 11 bytes that are none", None),
        ),
        (
            b"\xa3\x01" * 200 + b"\xa4\x01" * 200,
            ("malformed_protobuf", "needs a message of type A, found 800 bytes that are none", None),
        ),
    ],
)
def test_what_is_no_value_of_its_field_fails_its_record(value: bytes, problem: tuple[str, str, str | None]) -> None:
    assert refused(MIXED, value) == problem


def test_fields_that_are_not_declared_are_counted_or_refused() -> None:
    inner = b"\xa0\x01\x05"
    values = [b"", inner, inner + inner, b"\x22\x03" + inner, b"\x2a\x03" + inner, b"\x32\x05\x12\x03" + inner]
    values += [b"\xa3\x01\xa4\x01", b"\x5a\x03" + inner]
    decoded = decode(MIXED, *values)
    assert decoded.failures == []
    expected = {"$.20": 3, "$.in.20": 1, "$.many[].20": 1, "$.by{}.value.20": 1, "$.at.20": 1}
    assert decoded.unknown_fields == expected
    odd = decode(MIXED, *values, unknown_fields="fail")
    assert [each.row for each in odd.failures] == list(range(1, len(values)))
    assert {each.error_class for each in odd.failures} == {"unknown_field"}
    assert {each.field for each in odd.failures} == set(expected)


def test_values_at_their_limits() -> None:
    day = made(
        MIXED, day={"year": 9999, "month": 12, "day": 31}, time={"hours": 23, "minutes": 59, "nanos": 999_999_000}
    )
    found = row(MIXED, day)
    assert (found["day"], found["time"]) == (date(9999, 12, 31), time(23, 59, 0, 999_999))
    assert row(MIXED, made(MIXED, at={"seconds": -62_135_596_800}))["at"] == datetime(1, 1, 1, tzinfo=UTC)
    last = made(MIXED, at={"seconds": 253_402_300_799, "nanos": 999_999_000})
    assert row(MIXED, last)["at"] == datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    for number, text in ((99_999, "999.99"), (-99_999, "-999.99"), (0, "0.00")):
        value = number.to_bytes(3, "big", signed=True)
        assert row(MIXED, made(MIXED, price={"value": value, "scale": 2}))["price"] == Decimal(text)
    assert row(MIXED, made(MIXED, price={"value": b"\x05", "scale": -1}))["price"] == Decimal("50.00")
    assert row(MIXED, made(MIXED, price={"value": b"\x64", "scale": 3}))["price"] == Decimal("0.10")
    assert math.isnan(row(MIXED, made(MIXED, f=float("nan")))["f"])
    assert math.copysign(1, row(MIXED, made(MIXED, f=-0.0))["f"]) == -1
    assert row(MIXED, made(MIXED, n=-1))["n"] == -1


def test_json_is_canonical() -> None:
    kind: Any = GetMessageClass(message_of(MIXED))
    message = kind()
    message.json.update({"b": [1, 2.5, None, True, {"é": "\n"}], "a": -0.0, "c": 1e300, "d": 2.0**60})
    expected = '{"a":-0.0,"b":[1,2.5,null,true,{"é":"\\n"}],"c":1e+300,"d":1.152921504606847e+18}'
    assert row(MIXED, message.SerializeToString())["json"] == expected


WITHIN = WriterSchema(
    "message A { optional int32 n = 1; optional A next = 2; repeated A more = 3; map<string, A> by = 4; optional group "
    "G = 5 { optional A a = 1; repeated group H = 2 { required int32 x = 1; } } optional string s = 6; }"
)


def test_messages_within_themselves_keep_their_bytes_and_groups_are_read() -> None:
    group = {"a": {"n": 7}, "h": [{"x": 1}, {"x": 2}]}
    value = made(WITHIN, n=1, next={"n": 5}, more=[{"n": 6}, {}], by={"k": {"n": 6}}, g=group, s="end")
    assert row(WITHIN, value) == {
        "n": 1,
        "next": b"\x08\x05",
        "more": [b"\x08\x06", b""],
        "by": [("k", b"\x08\x06")],
        "g": {"a": b"\x08\x07", "h": [{"x": 1}, {"x": 2}]},
        "s": "end",
    }
    assert row(WITHIN, b"", **{"optional.for.proto2": False})["next"] is None
    assert refused(WITHIN, b"\x2a\x00")[:2] == ("wrong_type", "needs A.G, found bytes with a length")
    assert refused(WITHIN, b"\x2b\x08")[0] == "malformed_protobuf"


def test_a_record_of_ten_megabytes() -> None:
    text = "é" * 5_000_000
    assert row(MIXED, made(MIXED, s=text))["s"] == text


@pytest.mark.parametrize("cut", range(1, 60))
def test_records_cut_at_every_byte(cut: int) -> None:
    full = made(MIXED, n=-5, s="texts", many=[{"x": 1}, {"y": 2}], left=3, list=[1, -2], at={"seconds": 9}, f=1.5)
    decode(MIXED, full, full[:-cut], full)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_scalars_mean_what_the_schemas_own_message_says(data: Any) -> None:
    """By the parser and the descriptor of the schema itself, without the wire message."""
    message = data.draw(messages())
    kind: Any = GetMessageClass(message)
    value: bytes = data.draw(filled(message)).SerializeToString()
    decoded = ProtobufReferenceDecoder(message_tree(message, ProtobufRules())).decode(pa.array([value], pa.binary()))
    if decoded.failures:
        return
    (found,) = decoded.rows.to_pylist()
    expected = _plain(kind.FromString(value))
    assert repr({name: found[name] for name in expected}) == repr(expected)


def _plain(message: Any) -> dict[str, Any]:
    """The fields of a message whose values are Python's: scalars, enums, and messages and lists of these."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        name, kind = field.name, field.message_type
        if kind is not None and (field.is_repeated or not kind.full_name.startswith("drawn.")):
            continue
        if field.is_repeated:
            found[name] = [_scalar(field, value) for value in getattr(message, name)]
        elif field.has_presence and not message.HasField(name):
            found[name] = None
        elif kind is None:
            found[name] = _scalar(field, getattr(message, name))
    return found


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return Decimal(value) if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64) else value
