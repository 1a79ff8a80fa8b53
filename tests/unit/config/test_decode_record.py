"""Keys and headers in a stream's file: what may be said of them, and which columns that makes."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, MapType, NestedField, StringType, StructType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.decoder_spec import declared_of
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING, NAME_RULE, NameRule
from jobs.records.schema.parser import parse_schema

TRACE: dict[str, Any] = {"trace_id": "string"}


def stream(
    key: Any = None, headers: Any = None, *, schema: str = "id string", table: Any = None, errors: Any = None
) -> StreamSpec:
    decode: dict[str, Any] = {"value": "json", "schema": schema}
    decode |= {"key": key} if key is not None else {}
    decode |= {"headers": headers} if headers is not None else {}
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": decode,
            "table": {"name": "a.b", "kafka_columns": False} | (table or {}),
            "errors": errors or {},
        }
    )


def columns(spec: StreamSpec) -> list[str]:
    return [
        f"{field.name} {field.field_type}{' not null' if field.required else ''}" for field in spec.table_schema.fields
    ]


@pytest.mark.parametrize(
    ("key", "made"),
    [
        ({"format": "string", "into": "key"}, ["key string"]),
        ({"format": "bytes", "into": "`the key` not null"}, ["the key binary not null"]),
        ({"format": "long", "schema": "n long not null"}, ["n long not null"]),
        ({"format": "json", "schema": "n long, s string not null"}, ["n long", "s string not null"]),
        (
            {"format": "json", "schema": "n long", "into": "key NOT NULL"},
            ["key struct<3: n: optional long> not null"],
        ),
    ],
)
def test_a_key_becomes_a_column_or_columns_of_the_table(key: Any, made: list[str]) -> None:
    spec = stream(key)
    assert columns(spec) == ["id string", *made]
    assert spec.record_columns.fetched == {"key"}
    assert spec.disagreements_with(spec.table_schema) == []
    assert spec.resolved_for(spec.table_schema).schema.column_names == ["id"]
    again = StreamSpec.model_validate(spec.model_dump(mode="json"))
    assert (again, again.config_hash) == (spec, spec.config_hash)


FROM_TABLE: dict[str, Any] = {"format": "avro", "schema": "table", "into": "key"}


@pytest.mark.parametrize(
    ("key", "schema", "said"),
    [
        (FROM_TABLE | {"schema": "infer"}, "table", "of keys of the format avro cannot be 'infer': write the columns"),
        ({"format": "avro", "schema": "registry"}, "table", "is 'registry', which goes with into, such as into: key"),
        ({"format": "json", "schema": "registry", "into": "k"}, "table", "format json cannot be 'registry'"),
        ({"format": "connect_json", "schema": "registry", "into": "k"}, "table", "format connect_json cannot be"),
        ({"format": "string", "schema": "table"}, "table", "a key as string is one column: say which with into"),
        ({"format": "string", "into": "k", "subject": "s"}, "table", "format string have no schema there"),
    ],
)
def test_where_a_key_s_columns_cannot_be_from(key: Any, schema: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        stream(key, schema=schema)


@pytest.mark.parametrize(
    ("format_", "source"),
    [(each, source) for each in ("avro", "protobuf", "json_schema") for source in ("registry", "table")]
    + [("json", "table"), ("connect_json", "table")],
)
def test_a_key_s_columns_are_those_of_its_struct_in_the_table(format_: str, source: str) -> None:
    spec = stream({"format": format_, "schema": source, "into": "key"}, TRACE, schema="infer")
    # Their names alone are known without a table.
    assert (spec.decode.declared, spec.record_columns.names) == (None, {"key", "trace_id"})
    assert spec.record_columns.key_names == {"key"}
    with pytest.raises(ValueError, match="the table determines"):
        _ = spec.record_columns.decoded
    value = iceberg_schema(parse_schema("id string"))
    made = spec.table_schema_of(value, iceberg_schema(parse_schema("n long not null, s struct<t: date>")).fields)
    assert [(each.name, each.required) for each in made.fields] == [("id", False), ("key", False), ("trace_id", False)]
    found = spec.record_columns_for(made)
    assert found.key is not None
    assert found.key.fields[0].field_type == made.find_field("key").field_type
    assert declared_of(found.key.decoder).text == "n long not null, s struct<t date>"
    assert (found.kafka, found.headers, found.key_names) == (spec.kafka_columns, spec.record_columns.headers, {"key"})
    assert spec.resolved_for(made).schema.column_names == ["id"]
    assert (spec.problems_with(made), spec.disagreements_with(made)) == ([], [])
    again = StreamSpec.model_validate(spec.model_dump(mode="json"))
    assert (again, again.config_hash) == (spec, spec.config_hash)


def test_a_key_s_columns_may_be_the_table_s_beside_declared_ones_of_the_value() -> None:
    spec = stream(FROM_TABLE, schema="id string, n int", table={"partition_by": ["key.k"]})
    assert spec.decode.declared is not None
    assert not spec.decode.declares_all
    with pytest.raises(FrazilError, match="the columns of its keys are those of table"):
        _ = spec.table_schema
    table = iceberg_schema(parse_schema("id string, key struct<k: long>"))
    assert spec.resolved_for(table).schema.column_names == ["id", "n"]
    assert spec.disagreements_with(table) == ["Column n is declared, but the table has no such column."]
    # What the file says of the key's columns is looked at with the table, the rest of it without.
    assert spec.problems_with(table) == []
    ((place, _),) = spec.problems_with(iceberg_schema(parse_schema("id string, n int, key struct<m: long>")))
    assert place == ("table", "partition_by", 0)
    made = spec.table_schema_beside(table)
    assert [str(each.field_type) for each in made.fields] == ["string", "int", "struct<4: k: optional long>"]
    assert spec.disagreements_with(made) == []
    with pytest.raises(ValidationError, match=r"'Key' is a column of decode\.schema"):
        stream(FROM_TABLE, schema="id string, Key int")


def test_a_key_is_required_where_the_file_or_the_table_says_so() -> None:
    rows, fields = iceberg_schema(parse_schema("id string")), iceberg_schema(parse_schema("n long")).fields
    for written, there in product(("key", "key not null"), repeat=2):
        table = stream(FROM_TABLE | {"into": there}, schema="table").table_schema_of(rows, fields)
        spec = stream(FROM_TABLE | {"into": written}, schema="table")
        key = spec.record_columns_for(table).key
        assert key is not None
        assert (key.required, key.fields[0].required) == (("key not null" in (written, there)),) * 2
        assert spec.disagreements_with(table) == []


@pytest.mark.parametrize(
    ("format_", "columns", "said"),
    [
        ("avro", "id string", "the table has no column key, whose fields would be those of a key"),
        ("avro", "id string, Key struct<n: long>", "the table has no column key, whose fields"),
        ("avro", "id string, key string", "column key is string, no struct whose fields would be a key's"),
        ("avro", "id string, key list<struct<n: long>>", "no struct whose fields"),
    ],
)
def test_a_table_that_does_not_say_them_is_refused(format_: str, columns: str, said: str) -> None:
    spec, table = stream(FROM_TABLE | {"format": format_}, schema="table"), iceberg_schema(parse_schema(columns))
    ((place, problem),) = spec.problems_with(table)
    assert place == ("decode", "key", "schema")
    assert said in problem
    (sentence,) = spec.disagreements_with(table)
    assert said in sentence
    with pytest.raises(FrazilError, match=re.escape(said)) as refused:
        spec.record_columns_for(table)
    assert refused.value.fix == "correct decode.key in streams/s.yaml, or alter the table"


def test_a_struct_that_json_does_not_fill_is_refused() -> None:
    number = MapType(3, LongType(), 4, StringType())
    key = NestedField(2, "key", StructType(NestedField(5, "m", number)))
    table = Schema(NestedField(1, "id", StringType()), key)
    ((_, problem),) = stream(FROM_TABLE | {"format": "json"}, schema="table").problems_with(table)
    assert problem.startswith("column key has a field that JSON does not fill: m (")
    assert stream(FROM_TABLE, schema="table").problems_with(table) == []


def test_fields_of_a_key_that_were_renamed_in_the_table_are_found_by_its_name_mapping() -> None:
    spec = stream(FROM_TABLE, schema="table")
    table = iceberg_schema(parse_schema("id string, key struct<number: long, s: struct<t: string>>"))
    ids = {name: table.find_field(name).field_id for name in ("id", "key", "key.number", "key.s.t")}
    mapping = [
        {"field-id": ids["id"], "names": ["id", "old"]},
        {"field-id": ids["key.number"], "names": ["number", "n"]},
        {"field-id": ids["key.s.t"], "names": ["t", "u"]},
    ]
    key = spec.record_columns_for(table, {NAME_MAPPING: json.dumps(mapping)}).key
    assert key is not None
    assert key.decoder.options[NAME_RULE] == NameRule(((("number",), ("n",)), (("s", "t"), ("u",))))
    plain = spec.record_columns_for(table).key
    assert plain is not None
    assert NAME_RULE not in plain.decoder.options


def test_what_the_file_says_of_fields_of_a_key_is_held_against_the_table() -> None:
    masked = {"dead_letters": {"mask": {"columns": ["key.N"]}}}
    spec = stream(FROM_TABLE, schema="table", table={"partition_by": ["key.n"], "sort_by": ["key.m"]}, errors=masked)
    table = iceberg_schema(parse_schema("id string, key struct<n: long>"))
    places = [place[:2] for place, _ in spec.problems_with(table)]
    assert ("table", "sort_by") in places
    assert ("errors", "dead_letters") in places


def test_a_registry_is_needed_for_values_or_for_keys() -> None:
    avro = {"format": "avro", "schema": "n long", "into": "key"}
    assert (stream(avro).decode.needs_registry, stream(avro).decode.of_registry) == (True, "keys as avro")
    assert stream({"format": "string", "into": "key"}).decode.needs_registry is False


def test_headers_become_columns_behind_those_of_the_key() -> None:
    long_form = {"header": "x-n", "type": "long not null", "as": "bytes"}
    spec = stream(
        {"format": "string", "into": "key"}, TRACE | {"n": long_form}, table={"kafka_columns": {"topic": "src"}}
    )
    assert [each.split()[0] for each in columns(spec)][:5] == ["id", "key", "trace_id", "n", "src"]
    assert [(each.name, each.header, each.as_bytes) for each in spec.record_columns.headers] == [
        ("trace_id", "trace_id", False),
        ("n", "x-n", True),
    ]
    assert spec.record_columns.fetched == {"key", "headers"}
    assert StreamSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"format": "string"}, "a key as string is one column: say which with into"),
        ({"format": "string", "into": "k", "schema": "k string"}, "a key as string is one column"),
        ({"format": "long", "schema": "k string"}, "are one column of the type long"),
        ({"format": "json"}, "decode.key.schema: is required|key.schema: is required|schema: is required"),
        ({"format": "json", "schema": "n lon"}, "'lon' is not a type"),
        ({"format": "string", "into": "k", "unknown_fields": "fail"}, "keys of the format string have none"),
        ({"format": "xml", "into": "k"}, "should be 'json'"),
        ({"into": "k"}, "form"),
        ({"format": "string", "into": "_kafka_x"}, "kept for frazil's own"),
    ],
)
def test_what_is_no_key_is_refused(key: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        stream(key)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"h": "list<string>"}, "of a header as text must be one of"),
        ({"h": {"type": "date", "as": "bytes"}}, "of a header as bytes must be one of"),
        ({"h": "decimal(9,2) as unscaled"}, r"cannot be decimal\(9,2\) as unscaled: .*; write decimal\(9,2\) "),
        ({"h": "lon"}, "'lon' is not a type"),
        ({"h": "string, b int"}, "must be one type"),
        ({"a": "string", "A": "string"}, "differs from 'a' by case only"),
        ({"h": {"header": "", "type": "string"}}, "at least 1 character"),
    ],
)
def test_what_is_no_header_is_refused(headers: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        stream(None, headers)


def test_a_column_comes_from_one_place() -> None:
    for key, headers, kafka, said in (
        ({"format": "string", "into": "ID"}, None, False, "'id' is a column of decode.schema"),
        ({"format": "string", "into": "k"}, {"K": "string"}, False, "'k' is a column of decode.key"),
        (None, {"h": "string"}, {"topic": "H"}, "'h' is a column of decode.headers"),
    ):
        with pytest.raises(ValidationError, match=said):
            stream(key, headers, table={"kafka_columns": kafka})


def test_whatever_changes_their_columns_changes_the_hash() -> None:
    json_key = {"format": "json", "schema": "n long"}
    same = [stream(), stream(None, {})]
    others = [
        stream({"format": "string", "into": "k"}),
        stream({"format": "string", "into": "k2"}),
        stream({"format": "bytes", "into": "k"}),
        stream({"format": "string", "into": "k not null"}),
        stream(json_key),
        stream(json_key | {"into": "k"}),
        stream(json_key | {"into": "k not null"}),
        stream(json_key | {"unknown_fields": "fail"}),
        stream(FROM_TABLE, schema="table"),
        stream(FROM_TABLE | {"schema": "registry"}, schema="table"),
        stream(FROM_TABLE | {"into": "k"}, schema="table"),
        stream(FROM_TABLE | {"into": "key not null"}, schema="table"),
        stream(FROM_TABLE | {"unknown_fields": "fail"}, schema="table"),
        stream(FROM_TABLE | {"format": "protobuf"}, schema="table"),
        stream(None, TRACE),
        stream(None, {"trace_id": {"type": "string", "header": "x"}}),
        stream(None, {"trace_id": "string not null"}),
        stream(None, {"trace_id": {"type": "string", "as": "bytes"}}),
        stream(None, {"a": "string", "b": "string"}),
        stream(None, {"b": "string", "a": "string"}),
    ]
    assert len({each.config_hash for each in same}) == 1
    assert len({each.config_hash for each in (*same, *others)}) == 1 + len(others)
    # As they always were: a file of an earlier version goes on with the rows that it has.
    avro = {"format": "avro", "schema": "n long, s string not null", "into": "key not null", "unknown_fields": "fail"}
    earlier = [stream(each).config_hash for each in (avro, {"format": "string", "into": "key"}, json_key)]
    assert earlier == ["494fdec0e3be", "9149d92ccc22", "ce84ff7099b2"]
    named = [stream(FROM_TABLE | more, schema="table").config_hash for more in ({}, {"subject": "other"})]
    assert named[0] == named[1]
    one_way, other_way = {"format": "string", "into": "k"}, {"format": "string", "schema": "`k` string"}
    assert stream(one_way).config_hash == stream(other_way).config_hash


def test_partitions_and_masks_know_them() -> None:
    spec = stream({"format": "string", "into": "k"}, {"at": "timestamptz"}, table={"partition_by": ["day(at)", "k"]})
    assert len(spec.table.partition_by) == 2
