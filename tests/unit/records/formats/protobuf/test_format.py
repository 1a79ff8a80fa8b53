"""Protobuf records as they stand in a topic: behind the id of their schema and the indexes of their message."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId, WriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.protobuf.compile import message_of

OLD = WriterSchema('syntax = "proto3"; message Payment { string id = 1; int32 cents = 2; }')
NEW = WriterSchema(
    'syntax = "proto3"; message Other { bool b = 1; message Payment { int64 cents = 2; string id = 7; Kind kind = 3; } '
    "enum Kind { CARD = 0; CASH = 1; } }"
)
JSON = WriterSchema(
    'syntax = "proto3"; import "google/protobuf/struct.proto"; '
    "message A { google.protobuf.Struct payload = 1; string id = 2; repeated string parts = 3; }"
)
EVENT = 'syntax = "proto3"; message Ev { string id = 1; oneof kind { Created created = 2; Cancelled cancelled = 3; } } '
EMPTY = WriterSchema(EVENT + "message Created {} message Cancelled {}")
FILLED = WriterSchema(EVENT + "message Created { string by = 1; } message Cancelled {}")
SCHEMAS = {
    6: RegistrySchema("PROTOBUF", EMPTY),
    7: RegistrySchema("PROTOBUF", FILLED),
    5: RegistrySchema("PROTOBUF", JSON),
    1: RegistrySchema("PROTOBUF", OLD),
    2: RegistrySchema("PROTOBUF", NEW),
    3: RegistrySchema("PROTOBUF", WriterSchema("message A {")),
    4: RegistrySchema("AVRO", WriterSchema('"string"')),
}


@dataclass(frozen=True)
class Known:
    """Knows the schemas of this file."""

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        return SCHEMAS[schema_id.number or 0]

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> dict[SchemaId, RegistrySchema]:
        return {}


def record(number: int, indexes: bytes, schema: WriterSchema, message: tuple[int, ...] = (), **fields: Any) -> bytes:
    kind: Any = GetMessageClass(message_of(WriterSchema(schema.text, (), message)))
    return b"\x00" + struct.pack(">I", number) + indexes + kind(**fields).SerializeToString()


VALUES = [
    record(1, b"\x00", OLD, id="a", cents=5),
    record(2, b"\x04\x00\x00", NEW, (0, 0), id="b", cents=2**40, kind=1),
    None,
    b"\x00\x00\x00\x00\x01\x00\x08",
    record(1, b"\x02\x00", OLD, id="c", cents=-1) + b"\x48\x01",
    b"\x00\x00\x00\x00\x03\x00",
    b"\x00\x00\x00\x00\x04\x00",
    b"\x00\x00\x00\x00\x01\x02\x0a",
    b"\x00\x00\x00\x00\x01",
]


@pytest.mark.parametrize("make", ["reference", "block"])
@pytest.mark.parametrize("times", [1, 100])
def test_records_of_several_schemas_and_messages(make: str, times: int) -> None:
    decoded = decode(make, times)
    assert decoded.rows.slice(0, 3).to_pylist() == [
        {"id": "a", "cents": 5, "kind": None},
        {"id": "b", "cents": 2**40, "kind": "CASH"},
        {"id": "c", "cents": -1, "kind": None},
    ]
    assert decoded.rows.num_rows == 3 * times
    assert decoded.unknown_fields == {"$.9": times}
    assert [(each.row, each.error_class) for each in decoded.failures][:5] == [
        *((3, "malformed_protobuf"), (5, "bad_schema"), (6, "bad_schema"), (7, "bad_schema"), (8, "no_schema_id")),
    ]
    assert "protoc refuses the schema at line 1" in decoded.failures[1].message
    assert "has no message number 5" in decoded.failures[3].message


@pytest.mark.parametrize("make", ["reference", "block"])
def test_fields_that_no_schema_names_are_refused_if_asked(make: str) -> None:
    decoded = decode(make, 1, unknown_fields="fail")
    assert [each.field for each in decoded.failures if each.error_class == "unknown_field"] == ["$.9"]


def test_values_that_name_no_schema_are_the_first_message_of_the_one_that_the_file_names() -> None:
    spec = DecoderSpec("protobuf", DeclaredSchema("id string, cents long"), {"use.schema.id": 1}, Known())
    bare = record(1, b"\x00", OLD, id="a", cents=5)[6:]
    made = FORMATS["protobuf"].block(spec).decode(pa.array([bare] * 80, pa.binary()))
    assert made.rows.to_pylist() == [{"id": "a", "cents": 5}] * 80


@pytest.mark.parametrize("make", ["reference", "block"])
def test_a_message_that_gets_fields(make: str) -> None:
    values = [
        record(6, b"\x00", EMPTY, id="a", created={}),
        record(6, b"\x00", EMPTY, id="b", cancelled={}),
        record(7, b"\x00", FILLED, id="c", created={"by": "x"}),
        record(7, b"\x00", FILLED, id="d", cancelled={}),
    ]
    block = pa.array(values * 40, pa.binary())
    filled = DeclaredSchema("id string, created struct<by: string>, cancelled boolean")
    decoded = getattr(FORMATS["protobuf"], make)(DecoderSpec("protobuf", filled, {}, Known())).decode(block)
    assert decoded.failures == []
    assert decoded.rows.slice(0, 4).to_pylist() == [
        {"id": "a", "created": {"by": None}, "cancelled": None},
        {"id": "b", "created": None, "cancelled": True},
        {"id": "c", "created": {"by": "x"}, "cancelled": None},
        {"id": "d", "created": None, "cancelled": True},
    ]
    decoded.rows.validate(full=True)
    empty = DeclaredSchema("id string, created boolean, cancelled boolean")
    decoded = getattr(FORMATS["protobuf"], make)(DecoderSpec("protobuf", empty, {}, Known())).decode(block)
    assert [each["id"] for each in decoded.rows.slice(0, 3).to_pylist()] == ["a", "b", "d"]
    failure = decoded.failures[0]
    assert (failure.row, failure.error_class, failure.field) == (2, "wrong_type", "$.created")
    assert "`frazil schema apply STREAM --rename created=OTHER` keeps this column under another name" in failure.message


@pytest.mark.parametrize("make", ["reference", "block"])
def test_a_json_column_holds_the_json_of_the_value(make: str) -> None:
    spec = DecoderSpec("protobuf", DeclaredSchema("payload json, id json, parts list<json>"), {}, Known())
    values = [
        record(5, b"\x00", JSON, payload={"b": 'say "hi"', "a": None}, id='"', parts=["x", "1"]),
        record(5, b"\x00", JSON, parts=[]),
    ]
    decoded = getattr(FORMATS["protobuf"], make)(spec).decode(pa.array(values * 40, pa.binary()))
    assert decoded.rows.slice(0, 2).to_pylist() == [
        {"payload": '{"a":null,"b":"say \\"hi\\""}', "id": '"\\""', "parts": ['"x"', '"1"']},
        {"payload": None, "id": '""', "parts": []},
    ]


def decode(make: str, times: int, **options: Any) -> Decoded:
    declared = DeclaredSchema("id string, cents long, kind string")
    spec = DecoderSpec("protobuf", declared, {"unknown_fields": "ignore", **options}, Known())
    return getattr(FORMATS["protobuf"], make)(spec).decode(pa.array(VALUES * times, pa.binary()))


def test_other_streams_do_not_import_what_protobuf_needs() -> None:
    asked = (
        "import sys, jobs.records.formats.known_formats;"
        "print({'google.protobuf', 'ptars', 'grpc_tools'} & {*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True).stdout.split() == [b"set()"]
