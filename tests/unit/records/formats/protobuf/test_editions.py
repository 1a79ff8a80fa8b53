"""Protobuf's editions: presence, encodings and enums as the features say, alike in both decoders."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema
from jobs.records.formats.protobuf.block import ProtobufBlockDecoder
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.options import ProtobufRules
from jobs.records.formats.protobuf.reference import ProtobufReferenceDecoder
from jobs.records.formats.protobuf.schema import message_tree

SCHEMA = """
edition = "2023";
message A {
  int32 plain = 1;
  int32 implicit = 2 [features.field_presence = IMPLICIT];
  string needed = 3 [features.field_presence = LEGACY_REQUIRED];
  Sub sub = 4;
  repeated int32 packed = 5;
  repeated int32 loose = 6 [features.repeated_field_encoding = EXPANDED];
  Open open = 7;
  Closed closed = 8;
  string raw = 9 [features.utf8_validation = NONE];
  message Sub { int32 x = 1; }
  enum Open { ZERO = 0; ONE = 1; }
  enum Closed { option features.enum_type = CLOSED; C1 = 1; C2 = 2; }
}
"""
NOTHING = {
    **dict.fromkeys(("plain", "sub", "open", "closed", "raw")),
    "implicit": 0,
    "needed": "a",
    "packed": [],
    "loose": [],
}


def decoded(text: str, *values: bytes | dict[str, Any]) -> Decoded:
    message = message_of(WriterSchema(text))
    kind: Any = GetMessageClass(message)
    written = [each if isinstance(each, bytes) else kind(**each).SerializePartialToString() for each in values]
    tree = message_tree(message, ProtobufRules())
    made = ProtobufBlockDecoder(tree, smallest=1).decode(pa.array(written, pa.binary()))
    expected = ProtobufReferenceDecoder(tree).decode(pa.array(written, pa.binary()))
    assert made.failures == expected.failures
    assert made.rows.equals(expected.rows)
    return made


def test_presence_and_encodings_are_as_the_features_say() -> None:
    every = {"plain": 0, "implicit": 0, "needed": "a", "sub": {"x": 1}, "packed": [1, 2], "loose": [3, 4]}
    every |= {"open": 1, "closed": 2, "raw": "x"}
    needed = b"\x1a\x01a"
    # Lists in either encoding, whichever the schema asks writers for.
    other_lists = needed + b"\x28\x01\x28\x02" + b"\x32\x02\x03\x04"
    made = decoded(SCHEMA, {"needed": "a"}, every, other_lists)
    assert made.failures == []
    assert made.rows.to_pylist() == [
        NOTHING,
        {**every, "open": "ONE", "closed": "C2"},
        {**NOTHING, "packed": [1, 2], "loose": [3, 4]},
    ]


def test_what_is_missing_or_nothing_that_the_schema_knows_fails() -> None:
    needed = b"\x1a\x01a"
    made = decoded(SCHEMA, {}, needed + b"\x38\x09", needed + b"\x40\x09", needed + b"\x4a\x01\xff")
    assert [(each.error_class, each.field) for each in made.failures] == [
        ("missing_field", "$.needed"),
        ("out_of_range", "$.open"),
        ("out_of_range", "$.closed"),
        ("invalid_utf8", "$.raw"),
    ]


def test_features_of_the_whole_file() -> None:
    text = 'edition = "2023"; option features.field_presence = IMPLICIT; message A { int32 n = 1; string s = 2; }'
    assert decoded(text, b"").rows.to_pylist() == [{"n": 0, "s": ""}]


def test_delimited_messages() -> None:
    text = (
        'edition = "2023"; message A { B b = 1 [features.message_encoding = DELIMITED]; '
        "C c = 2 [features.message_encoding = DELIMITED]; message B {} message C { int32 n = 1; } }"
    )
    assert decoded(text, b"\x0b\x0c\x13\x08\x05\x14").rows.to_pylist() == [{"b": True, "c": {"n": 5}}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('edition = "2999"; message A { int32 n = 1; }', 'protoc refuses the schema at line 1: Unknown edition "2999"'),
    ],
)
def test_what_is_not_read_is_told(text: str, message: str) -> None:
    with pytest.raises(BadWriterSchema) as caught:
        message_tree(message_of(WriterSchema(text)), ProtobufRules())
    assert message in caught.value.message
