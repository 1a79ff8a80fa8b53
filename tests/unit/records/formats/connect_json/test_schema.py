"""Schemas in Connect's JSON as declared types; one that is none says where and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.schema.arrow_schema import arrow_schema, rows_arrow_schema
from jobs.records.schema.declared import MapType, Primitive, StructType
from jobs.records.schema.iceberg_schema import iceberg_schema
from tests.helpers.connect_records import connect_schema, kinds
from tests.helpers.json_records import structs


@settings(max_examples=60)
@given(structs(kinds))
def test_a_schema_says_the_types_that_it_is_made_of(declared: StructType) -> None:
    types = connect_types(json.dumps(connect_schema(declared)))
    assert (types.single, types.defaults) == (False, None)
    # Keys of maps that are strings have no further meaning.
    assert types.declared == declared
    assert arrow_schema(declared).equals(rows_arrow_schema(iceberg_schema(declared)))


def field(field: str, /, **schema: Any) -> dict[str, Any]:
    return {"field": field, **schema}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("not json", "it is no JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"type":"int32","default":NaN}', "it is no JSON"),
        ([], "it is no object"),
        ({}, "it has no type"),
        ({"type": 5}, "it has no type"),
        ({"type": "float32"}, "it has the type 'float32'; the types are boolean, int8"),
        (struct(field("a", type="struct", fields=[field("b", type="strng")])), "the field a.b has the type 'strng'"),
        (struct(field("a", type="array")), "the field a[] is no object"),
        (struct(field("a", type="array", items=None)), "the field a[] is no object"),
        (struct(field("a", type="map", keys={"type": "string"})), "the field a.value is no object"),
        (struct(field("a", type="map", keys=struct(), values={"type": "string"})), "keys are no single values"),
        ({"type": "struct"}, "it is a struct without an array of fields"),
        (struct({"type": "string"}), "it has no name for field 1"),
        (struct(field("a", type="string"), field("a", type="int32")), "has the field a twice"),
        (struct(field("a", type="string"), field("A", type="int32")), "has the field A and a, which differ by case"),
        (struct(field('a"b', type="string")), "whose name cannot be matched"),
        (struct(), "it has no fields"),
        (struct(field("a", type="struct", fields=[])), "it has no fields"),
        (struct(field("a", type="struct", fields=[field("b", type="string")]), field("a.b", type="int8")), "path"),
        (
            struct(field("a", type="bytes", name="org.apache.kafka.connect.data.Decimal")),
            "the field a is org.apache.kafka.connect.data.Decimal without a scale",
        ),
        (
            struct(field("a", type="string", name="org.apache.kafka.connect.data.Date")),
            "the field a is org.apache.kafka.connect.data.Date, which is of the type int32, not string",
        ),
        (struct(field("a", type="string", parameters={"b": 1})), "the field a has the parameter b, which is no text"),
        (struct(field("a", type="int8", default=300)), "the field a has a default that is none"),
    ],
)
def test_one_that_is_none_says_where(schema: Any, message: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(BadWriterSchema) as caught:
        connect_types(text, defaults=True)
    assert message in caught.value.message


def test_a_struct_without_fields_within_others_is_left_out() -> None:
    text = json.dumps(struct(field("a", type="string"), field("b", type="struct", fields=[])))
    assert [one.name for one in connect_types(text).declared.fields] == ["a"]


def test_keys_that_are_strings_are_members_of_an_object_whatever_their_name() -> None:
    keys = {"type": "string", "name": "io.debezium.data.Uuid"}
    types = connect_types(json.dumps({"type": "map", "keys": keys, "values": {"type": "boolean"}}))
    assert types.declared.fields[0].type == MapType(Primitive("string"), Primitive("boolean"), True, "object")
