"""What Avro values mean to both decoders, as another library reads them too, and why others mean nothing."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.records.formats.avro.block import AvroBlockDecoder
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.reference import AvroReferenceDecoder
from jobs.records.formats.avro.schema import top_node
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import WriterSchema
from tests.unit.records.formats.avro.generated import (
    Kind,
    number,
    schemas,
    sized,
    text,
)


def decode(schema: Any, *values: bytes, **options: Any) -> Decoded:
    node = top_node(WriterSchema(json.dumps(schema)), AvroOptions(**options))
    array = pa.array(values, pa.binary())
    made, block = AvroReferenceDecoder(node).decode(array), AvroBlockDecoder(node, smallest=1).decode(array)
    assert (made.rows, made.failures) == (block.rows, block.failures)
    return made


def one(schema: Any, value: bytes, **options: Any) -> Any:
    """The value of a schema, as the only column, or the class and the place of the failure."""
    made = decode({"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]}, value, **options)
    if made.failures:
        (failure,) = made.failures
        assert made.rows.num_rows == 0
        return failure.error_class, failure.message, failure.field
    return made.rows.to_pylist()[0]["a"]


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "at", "type": {"type": "int", "logicalType": "date"}},
        {"name": "next", "type": ["null", "Node"]},
        {"name": "more", "type": ["null", {"type": "map", "values": "Node"}, "double"]},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "raw", "type": "bytes"},
    ],
}


def node_bytes(text: str, next_: bytes = b"\x00", more: bytes = b"\x00", nulls: int = 0) -> bytes:
    empty = number(nulls) + b"\x00" if nulls else b"\x00"
    return sized(text.encode()) + number(1) + next_ + more + empty + sized(b"\xff")


def test_what_lies_within_itself_is_read_as_json() -> None:
    inner = node_bytes('"b"', nulls=100)
    outer = node_bytes("a", b"\x02" + inner, b"\x02" + number(1) + sized(b"k") + inner + b"\x00")
    other = node_bytes("c", more=b"\x04" + struct.pack("<d", 0.5))
    made = decode(NODE, outer, other, outer[:-1], node_bytes("d", nulls=2**40), b"")
    nulls = ",".join(["null"] * 100)
    json_of_inner = f'{{"at":"1970-01-02","nulls":[{nulls}],"raw":"/w==","text":"\\"b\\""}}'
    rest = {"at": date(1970, 1, 2), "raw": b"\xff", "nulls": "[]"}
    assert made.rows.to_pylist() == [
        rest | {"text": "a", "next": json_of_inner, "more": {"map": f'{{"k":{json_of_inner}}}', "double": None}},
        rest | {"text": "c", "next": None, "more": {"map": None, "double": 0.5}},
    ]
    assert [(each.error_class, each.field) for each in made.failures] == [
        ("malformed_avro", "$.raw"), ("malformed_avro", "$.nulls"), ("empty_value", None),
    ]  # fmt: skip


def test_a_record_names_the_one_in_which_it_was_defined_wherever_it_is_used() -> None:
    again = ["null", "B"]
    fields = [{"name": "x", "type": "int"}, {"name": "a", "type": ["null", "A"]}, {"name": "again", "type": again}]
    inner = {"type": "record", "name": "B", "fields": fields}
    outer = {"type": "record", "name": "A", "fields": [{"name": "b", "type": ["null", inner]}]}
    value = b"\x02\x02\x02\x08\x00\x00\x02\x04\x02\x02\x06\x00\x00\x00"
    found = {"x": 1, "a": '{"b":{"x":4}}', "again": '{"a":{"b":{"x":3}},"x":2}'}
    assert decode([outer, "B"], b"\x02" + value).rows.to_pylist() == [{"A": None, "B": found}]
    references = (("a", json.dumps(outer)),)
    node = top_node(WriterSchema('"B"', references), AvroOptions())
    assert AvroReferenceDecoder(node).decode(pa.array([value])).rows.to_pylist() == [found]


def test_what_lies_within_itself_too_often_is_too_deep() -> None:
    value = node_bytes("x")
    for _ in range(2_000):
        value = node_bytes("x", b"\x02" + value)
    assert [each.error_class for each in decode(NODE, value).failures] == ["too_deep"]


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def debezium(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.name": f"io.debezium.{name}"}


DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
WIDE = logical("bytes", "decimal", precision=64, scale=2)
ENUM = {"type": "enum", "name": "E", "symbols": ["x", "y"]}
UUID_TEXT = "0F8FAD5B-d9cb-469f-a165-70867728950e"
SCALED = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def unscaled(value: int, size: int = 17) -> bytes:
    return sized(value.to_bytes(size, signed=True))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("boolean", b"\x01", True),
        ("int", number(-(2**31)), -(2**31)),
        ("int", b"\x82\x80\x00", 1),
        ("long", number(-(2**63)), -(2**63)),
        ("float", struct.pack("<f", 1.5), 1.5),
        ("double", struct.pack("<d", float("inf")), float("inf")),
        ("bytes", sized(b"\xff"), b"\xff"),
        ("string", sized("Größe\0".encode()), "Größe\0"),
        (ENUM, b"\x02", "y"),
        ({"type": "array", "items": "int"}, b"\x00", []),
        ({"type": "array", "items": "int"}, number(1) + b"\x02" + number(-2) + number(2) + b"\x04\x06\x00", [1, 2, 3]),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00", [("a", 2)]),
        (["null", "int"], b"\x00", None),
        (["int", "null"], b"\x00\x02", 1),
        (["null", "int", "string"], b"\x04\x02a", {"int": None, "string": "a"}),
        (["null", "int", "string"], b"\x00", None),
        (logical("int", "date"), number(-719_162), date(1, 1, 1)),
        (logical("int", "time-millis"), number(86_399_999), time(23, 59, 59, 999_000)),
        (logical("long", "time-micros"), number(1), time(0, 0, 0, 1)),
        (logical("long", "timestamp-millis"), number(-1), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        (logical("long", "timestamp-micros"), number(-62_135_596_800_000_000), datetime(1, 1, 1, tzinfo=UTC)),
        (logical("long", "timestamp-nanos"), number(1_000), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
        (logical("long", "timestamp-nanos"), number(-1_000), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (logical("long", "local-timestamp-millis"), number(1), datetime(1970, 1, 1, 0, 0, 0, 1_000)),
        (logical("string", "uuid"), sized(UUID_TEXT.encode()), UUID(UUID_TEXT).bytes),
        (debezium("long", "time.NanoTime"), number(1_000), time(0, 0, 0, 1)),
        (
            debezium("string", "time.ZonedTimestamp"),
            sized(b"1970-01-01T01:00:00+01:00"),
            datetime(1970, 1, 1, tzinfo=UTC),
        ),
        (DECIMAL, unscaled(-99_999), Decimal("-999.99")),
        (DECIMAL, unscaled(0, 1), Decimal("0.00")),
        (WIDE, unscaled(10**38 - 1), Decimal("9" * 36 + ".99")),
        (SCALED, number(2) + unscaled(1234), {"scale": 2, "value": (1234).to_bytes(17)}),
    ],
)
def test_values_are_what_was_written(schema: Any, value: bytes, expected: Any) -> None:
    assert one(schema, value) == expected


def test_logical_types_may_stay_as_they_were_sent() -> None:
    zoned, timestamp = debezium("string", "time.ZonedTimestamp"), "org.apache.kafka.connect.data.Timestamp"
    millis = logical("long", "timestamp-millis", **{"connect.name": timestamp})
    as_sent = ("io.debezium.time.ZonedTimestamp", timestamp)
    assert one(zoned, sized(b"infinity"))[0] == "bad_timestamp"
    assert one(zoned, sized(b"infinity"), as_sent=as_sent) == "infinity"
    assert one(millis, number(2**62), as_sent=as_sent) == 2**62
    decimal = "org.apache.kafka.connect.data.Decimal"
    fixed = {"type": "fixed", "name": "F", "size": 2} | {"logicalType": "decimal", "precision": 4, "scale": 2}
    assert one(fixed | {"connect.name": decimal}, b"\x00\x7b") == Decimal("1.23")
    assert one(fixed | {"connect.name": decimal}, b"\x00\x7b", as_sent=(decimal,)) == b"\x00\x7b"


@pytest.mark.parametrize(
    ("kind", "scale", "value", "expected"),
    [
        ("text", 2, -1234, "-12.34"),
        ("text", -2, 5, "500"),
        ("text", 3, 0, "0.000"),
        ("decimal(6,2)", 4, 120_000, Decimal("12.00")),
        ("decimal(6,2)", -2, -5, Decimal("-500.00")),
        ("decimal(6,2)", 3, 1, "precision_loss"),
        ("decimal(6,2)", 0, 10_000, "out_of_range"),
        ("decimal(6,2)", -10_001, 1, "out_of_range"),
        ("text", 2**31 - 1, 1, "out_of_range"),
    ],
)
def test_a_decimal_of_any_scale_is_exact_or_refused(kind: str, scale: int, value: int, expected: Any) -> None:
    found = one(SCALED, number(scale) + unscaled(value), variable_scale_decimal=kind)
    assert (found[0] if isinstance(found, tuple) else found) == expected


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("boolean", b"\x02", ("wrong_type", "needs the byte 0x00 or 0x01, found 0x02")),
        ("int", number(2**31), ("out_of_range", "needs int, found a number beyond its range")),
        ("long", b"\xff" * 9 + b"\x03", ("malformed_avro", "needs long, found a number of more than 64 bits")),
        ("long", b"\x80" * 10 + b"\x00", ("malformed_avro", "needs long, found a number of more than 64 bits")),
        ("long", b"\x80", ("malformed_avro", "needs long, found the end of the record")),
        ("double", bytes(7), ("malformed_avro", "needs double, found the end of the record")),
        ("bytes", number(-1), ("malformed_avro", "needs bytes, found the end of the record")),
        ("bytes", number(2**62), ("malformed_avro", "needs bytes, found the end of the record")),
        ("string", sized(b"a\xff"), ("invalid_utf8", "needs UTF-8, found 0xff at byte 1 (invalid start byte)")),
        (ENUM, b"\x04", ("malformed_avro", "needs one of 2 symbols, found number 2")),
        (ENUM, b"\x01", ("malformed_avro", "needs one of 2 symbols, found number -1")),
        (["null", "boolean"], b"\x04\x01", ("malformed_avro", "needs one of 2 types, found number 2")),
        (["null", "boolean"], b"\x06\x01", ("malformed_avro", "needs one of 2 types, found number 3")),
        (["boolean", "null"], b"\x01", ("malformed_avro", "needs one of 2 types, found number -1")),
        (["null", "boolean"], b"\x02\x02", ("wrong_type", "needs the byte 0x00 or 0x01, found 0x02")),
        (
            logical("int", "date"),
            number(2_932_897),
            ("out_of_range", "needs date in the years 0001 to 9999, found 2932897"),
        ),
        (
            logical("int", "time-millis"),
            number(86_400_000),
            ("out_of_range", "needs time of one day, found 86400000 ms"),
        ),
        (logical("long", "time-micros"), number(-1), ("out_of_range", "needs time of one day, found -1 us")),
        (
            logical("long", "timestamp-millis"),
            number(2**63 - 1),
            ("out_of_range", f"needs timestamptz in the years 0001 to 9999, found {2**63 - 1} ms"),
        ),
        (
            logical("long", "local-timestamp-nanos"),
            number(1),
            ("precision_loss", "needs timestamp in whole microseconds, found 1"),
        ),
        (DECIMAL, b"\x00", ("wrong_length", "needs the bytes of a decimal(5,2), found none")),
        (
            DECIMAL,
            unscaled(100_000),
            ("out_of_range", "needs decimal(5,2), found '1000.00' with too many digits before the point"),
        ),
        (WIDE, sized(b"\x7f" * 100), ("out_of_range", "needs decimal(38,2), found a number of 100 bytes")),
    ],
)
def test_what_means_nothing_fails_at_its_place(schema: Any, value: bytes, expected: tuple[str, str]) -> None:
    assert one(schema, value) == (*expected, "$.a")


def test_the_place_of_a_failure_is_told() -> None:
    inner = {"type": "record", "name": "Q", "fields": [{"name": "x", "type": ["null", "int", "boolean"]}]}
    assert one({"type": "array", "items": inner}, b"\x04\x02\x02\x04\x07")[2] == "$.a[1].x.boolean"
    assert one({"type": "map", "values": inner}, b"\x02\x02k\x04\x07")[2] == "$.a[...].x.boolean"
    (failure,) = decode("boolean", b"\x07").failures
    assert failure.field == "$.value"


def test_a_list_of_more_items_than_bytes_takes_no_memory() -> None:
    for count in (2**31, 2**40, 2**63 - 1, -(2**63)):
        for schema in ({"type": "array", "items": ["null", "int"]}, {"type": "map", "values": "int"}):
            found = one(schema, number(count) + bytes(40))
            assert found[0] == "malformed_avro", found


def test_values_without_bytes_are_counted_over_the_whole_record() -> None:
    lists = {"type": "array", "items": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int", lists]}]}

    def failures(*sizes: int) -> list[str]:
        blocks = b"".join(number(size) for size in sizes)
        nested = b"".join(number(size) + b"\x00" for size in sizes)
        values = [b"\x04\x02" + blocks + b"\x00\x00", b"\x04" + number(len(sizes)) + nested + b"\x00"]
        return [each.message for each in decode(schema, *values).failures]

    assert failures(40_000, 25_536) == []
    assert failures(40_000, 25_537) == ["needs at most 65,536 values without bytes in a record, found more"] * 2


PAIR = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "int"]}],
}


def test_a_record_is_read_from_its_first_byte_to_its_last() -> None:
    whole = b"\x06abc\x02\x80\x02"
    made = decode(PAIR, whole, *(whole[:end] for end in range(len(whole))), whole + b"\x00")
    assert made.positions.tolist() == [0]
    assert [each.row for each in made.failures] == list(range(1, len(whole) + 2))
    assert made.failures[0].error_class == "empty_value"
    assert {each.error_class for each in made.failures[1:]} == {"malformed_avro"}
    assert made.failures[-1].message == "needs the end of the record, found more"


def test_a_record_of_ten_megabytes() -> None:
    assert one("bytes", sized(bytes(10 << 20))) == bytes(10 << 20)
    assert one(DECIMAL, sized(bytes(10 << 20) + b"\x05")) == Decimal("0.05")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_another_library_reads_the_same_values(data: st.DataObject) -> None:
    kind: Kind = data.draw(schemas(plain=True))
    value = data.draw(kind.values)
    read = fastavro.schemaless_reader(io.BytesIO(value), kind.schema, None)
    (row,) = decode(kind.schema, value).rows.to_pylist()
    assert row == as_row(kind.schema, read), text(kind)


def as_row(schema: Any, value: Any) -> Any:
    """What fastavro reads, as rows have it: maps as lists of pairs."""
    match schema:
        case _ if value is None:
            return None
        case list():
            return as_row(next(each for each in schema if each != "null"), value)
        case {"type": "record", "fields": fields}:
            return {each["name"]: as_row(each["type"], value[each["name"]]) for each in fields}
        case {"type": "array", "items": items}:
            return [as_row(items, each) for each in value]
        case {"type": "map", "values": values}:
            return [(key, as_row(values, each)) for key, each in value.items()]
        case _:
            return value
