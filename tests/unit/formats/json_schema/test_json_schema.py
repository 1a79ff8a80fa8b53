"""Records of JSON Schema: types as Confluent's converter has them, decoded alike by both decoders."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.formats.decoder_spec import DecoderSpec, TableSchema
from jobs.formats.json_schema.format import JSON_SCHEMA
from jobs.formats.json_schema.schema import json_schema_types
from jobs.formats.writer_schema import BadWriterSchema, RegistrySchema, SchemaId, WriterSchema

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
DECIMAL = {
    "type": "number",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2"},
}
DATE = {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32"}


def types(schema: Any, *references: tuple[str, Any]) -> str:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    written = WriterSchema(text, tuple((name, json.dumps(one)) for name, one in references))
    return json_schema_types(written).declared.text


def of(schema: Any, *references: tuple[str, Any]) -> str:
    """The type of a property."""
    return types({"type": "object", "properties": {"f": schema}, "required": ["f"]}, *references)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRING, "f string not null"),
        ({"type": "boolean"}, "f boolean not null"),
        (INTEGER, "f long not null"),
        ({"type": "number"}, "f double not null"),
        ({"type": "integer", "connect.type": "int8"}, "f int as int8 not null"),
        ({"type": "number", "connect.type": "float32"}, "f float not null"),
        ({"type": "string", "connect.type": "bytes"}, "f binary not null"),
        (DECIMAL, "f decimal(38,2) as unscaled not null"),
        (DATE, "f date as epoch_days not null"),
        ({"type": "integer", "title": "org.apache.kafka.connect.data.Date"}, "f long not null"),
        ({"type": "string", "format": "date-time"}, "f string not null"),
        ({"enum": ["a", "b"]}, "f string not null"),
        ({"const": "a"}, "f string not null"),
        ({"type": ["null", "string"]}, "f string"),
        ({"oneOf": [NULL, INTEGER]}, "f long"),
        ({"anyOf": [{"oneOf": [NULL, INTEGER]}]}, "f long"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "f string not null"),
        ({"type": "array", "items": {"oneOf": [NULL, STRING]}}, "f list<string> not null"),
        ({"type": "array", "items": STRING}, "f list<string not null> not null"),
        (
            {"type": "object", "connect.type": "map", "additionalProperties": INTEGER},
            "f map<string, long not null> not null",
        ),
        ({"type": "object", "properties": {"a": INTEGER}}, "f struct<a long> not null"),
    ],
)
def test_a_type(schema: Any, expected: str) -> None:
    assert of(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"oneOf": [STRING, INTEGER]},
        {"type": ["string", "integer"]},
        {"type": "object"},
        {"type": "array"},
        {"type": "array", "items": [STRING, INTEGER]},
        {"enum": ["a", 1]},
        {"allOf": [STRING, INTEGER]},
    ],
)
def test_what_has_no_one_type_is_left_out(schema: Any) -> None:
    assert types({"type": "object", "properties": {"f": schema, "g": STRING}}) == "g string"


def test_properties_stand_where_connect_had_them() -> None:
    properties = {"b": {**STRING, "connect.index": 1}, "a": {**STRING, "connect.index": 0}}
    assert types({"type": "object", "properties": properties}) == "a string, b string"


def test_references_within_and_to_other_schemas() -> None:
    other = {"$defs": {"x/y": {"type": "object", "properties": {"z": {"$ref": "#/$defs/n"}}}, "n": INTEGER}}
    assert of({"$ref": "other.json#/$defs/x~1y"}, ("other.json", other)) == "f struct<z long> not null"
    assert of({"$ref": "other.json"}, ("other.json", STRING)) == "f string not null"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "nested too deep"),
        ([], "it is no schema"),
        ({"type": "object"}, "nothing to land"),
        ({"$ref": "#"}, "within itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "the field a is within itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "the field a refers to what is not there"),
        ({"type": "object", "properties": {"a": {"$ref": "no.json"}}}, "not among its references"),
        ({"type": "object", "properties": {"a": STRING, "A": STRING}}, "differ by case only"),
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "a type that JSON Schema does not know"),
        ({"type": "object", "properties": []}, "properties that are no object"),
    ],
)
def test_one_that_is_none_says_where(schema: Any, message: str) -> None:
    with pytest.raises(BadWriterSchema) as caught:
        types(schema)
    assert message in caught.value.message


class Known:
    """One schema, with the number 1."""

    def __init__(self, schema: Any) -> None:
        self.schema: WriterSchema = WriterSchema(json.dumps(schema))

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        assert schema_id.number == 1
        return RegistrySchema("JSON", self.schema)


RECORD = {
    "type": "object",
    "properties": {
        "id": STRING,
        "amount": DECIMAL,
        "on": {"oneOf": [NULL, DATE]},
        "m": {
            "type": "array",
            "connect.type": "map",
            "items": {"type": "object", "properties": {"key": INTEGER, "value": STRING}},
        },
        "either": {"oneOf": [STRING, INTEGER]},
    },
    "required": ["id"],
}


@pytest.mark.parametrize("unknown", ["ignore", "fail"])
def test_records_behind_the_id_of_their_schema(unknown: str) -> None:
    known = Known(RECORD)
    assert JSON_SCHEMA.writer_rows is not None
    rows = JSON_SCHEMA.writer_rows(known.schema, {})
    spec = DecoderSpec("json_schema", TableSchema(rows.model_dump_json()), {"unknown_fields": unknown}, known)  # type: ignore[arg-type]
    texts = [
        b'{"id":"a","amount":1.25,"on":20454,"m":[{"key":1,"value":"x"}]}',
        b'{"id":"b","amount":"ME8="}',
        b'{"id":"c","on":null,"either":5}',
        b'{"id":null}',
        b'{"id":"d","m":[{"key":1,"value":"x"},{"key":1,"value":"y"}]}',
        b'{"id":"e"} x',
        b"",
    ]
    values = pa.array([None, *(b"\x00\x00\x00\x00\x01" + text for text in texts)] * 100, pa.binary())
    made, expected = JSON_SCHEMA.block(spec).decode(values), JSON_SCHEMA.reference(spec).decode(values)
    assert (made.failures, made.unknown_fields) == (expected.failures, expected.unknown_fields)
    assert made.rows.equals(expected.rows)
    assert made.positions.tolist() == expected.positions.tolist()
    assert [failure.error_class for failure in made.failures[: 4 + (unknown == "fail")]] == [
        *(["unknown_field"] if unknown == "fail" else []),
        *("null_in_required", "wrong_type", "malformed_json", "empty_value"),
    ]
    assert made.rows.column("amount").to_pylist()[:2] == [Decimal("1.25"), Decimal("123.67")]
    assert made.unknown_fields == ({} if unknown == "fail" else {"$.either": 100})
    assert len(made.tombstones) == 100
