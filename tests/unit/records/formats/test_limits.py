"""Records at the limits, of each format with a writer schema: very long ones, and times at the ends of the calendar."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.protobuf.compile import message_of

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "s", "type": "string"}, {"name": "at", "type": "long"}, {"name": "on", "type": "int"}],
}
AVRO_TIMES = json.loads(json.dumps(AVRO))
AVRO_TIMES["fields"][1]["type"] = {"type": "long", "logicalType": "timestamp-millis"}
AVRO_TIMES["fields"][2]["type"] = {"type": "int", "logicalType": "date"}
PROTOBUF = """
syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/type/date.proto";
message r { string s = 1; google.protobuf.Timestamp at = 2; google.type.Date on = 3; }
"""
DATA = "org.apache.kafka.connect.data."
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "at": {"type": "integer", "connect.type": "int64", "title": DATA + "Timestamp"},
        "on": {"type": "integer", "connect.type": "int32", "title": DATA + "Date"},
    },
}
CONNECT_JSON = {
    "type": "struct",
    "fields": [
        {"field": "s", "type": "string"},
        {"field": "at", "type": "int64", "name": DATA + "Timestamp"},
        {"field": "on", "type": "int32", "name": DATA + "Date"},
    ],
}
DAY = 86_400_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970-01-01."""


def avro(text: str, at: int, on: int) -> bytes:
    made = io.BytesIO()
    # Without logical types, which fastavro would convert.
    fastavro.schemaless_writer(made, fastavro.parse_schema(AVRO), {"s": text, "at": at, "on": on})
    return made.getvalue()


def protobuf(text: str, at: int, on: int) -> bytes:
    kind: Any = GetMessageClass(message_of(WriterSchema(PROTOBUF)))
    moment = {"seconds": at // 1000, "nanos": at % 1000 * 1_000_000}
    if on == LAST_DAY + 1:
        day = {"year": 10_000, "month": 1, "day": 1}
    elif on == FIRST_DAY - 1:
        # A year of 0 is none.
        day = {"year": 0, "month": 12, "day": 31}
    else:
        found = datetime.fromordinal(on + 719_163)
        day = {"year": found.year, "month": found.month, "day": found.day}
    return b"\x00" + kind(s=text, at=moment, on=day).SerializeToString()


def plain(text: str, at: int, on: int) -> bytes:
    return json.dumps({"s": text, "at": at, "on": on}).encode()


def enveloped(text: str, at: int, on: int) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (json.dumps(CONNECT_JSON).encode(), plain(text, at, on))


WRITERS: Mapping[str, tuple[Callable[[str, int, int], bytes], str, str]] = {
    "avro": (avro, "AVRO", json.dumps(AVRO_TIMES)),
    "protobuf": (protobuf, "PROTOBUF", PROTOBUF),
    "json_schema": (plain, "JSON", json.dumps(JSON_SCHEMA)),
    "connect_json": (enveloped, "", ""),
}


class Known:
    """One schema, with the number 1."""

    def __init__(self, kind: str, text: str) -> None:
        self.schema: RegistrySchema = RegistrySchema(kind, WriterSchema(text))

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        assert schema_id.number == 1
        return self.schema

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        return {}


def decoded(name: str, *records: tuple[str, int, int]) -> Decoded:
    write, kind, text = WRITERS[name]
    prefix = b"\x00" + struct.pack(">I", 1) if kind else b""
    values = pa.array([prefix + write(*each) for each in records], pa.binary())
    schema = DeclaredSchema("s string, at timestamptz, `on` date")
    spec = DecoderSpec(name, schema, {"unknown_fields": "ignore"}, Known(kind, text) if kind else None)
    block = FORMATS[name].block(spec)
    block.decode(values)
    made, expected = block.decode(values), FORMATS[name].reference(spec).decode(values)
    assert made.failures == expected.failures
    assert made.positions.tolist() == expected.positions.tolist()
    assert made.rows.equals(expected.rows)
    return made


@pytest.mark.parametrize("name", WRITERS)
def test_records_of_ten_megabytes_among_small_ones(name: str) -> None:
    long = "é" * 5_000_000
    texts = [long if n == 17 else f"s{n}" for n in range(400)]
    made = decoded(name, *((text, n, n) for n, text in enumerate(texts)))
    assert made.failures == []
    assert made.rows.column("s").to_pylist() == texts


@pytest.mark.parametrize("name", WRITERS)
def test_the_ends_of_the_calendar(name: str) -> None:
    first, last = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
    good = [("a", first, FIRST_DAY), ("b", last, LAST_DAY)]
    rows = decoded(name, *good * 200).rows.to_pylist()[:2]
    assert [row["at"] for row in rows] == [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ]
    assert [str(row["on"]) for row in rows] == ["0001-01-01", "9999-12-31"]
    bad = [("a", first - 1, 0), ("a", last + 1, 0), ("a", 0, FIRST_DAY - 1), ("a", 0, LAST_DAY + 1)]
    made = decoded(name, *good * 200, *bad)
    assert made.rows.num_rows == 400
    assert [each.field for each in made.failures] == ["$.at", "$.at", "$.on", "$.on"]
    of_dates = {"protobuf": "bad_date"}.get(name, "out_of_range")
    assert [each.error_class for each in made.failures] == ["out_of_range"] * 2 + [of_dates] * 2
