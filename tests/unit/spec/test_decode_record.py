"""Keys and headers in a stream's file: what may be said of them, and which columns that makes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.spec.models import StreamSpec

TRACE: dict[str, Any] = {"trace_id": "string"}


def stream(key: Any = None, headers: Any = None, *, schema: str = "id string", table: Any = None) -> StreamSpec:
    decode: dict[str, Any] = {"value": "json", "schema": schema}
    decode |= {"key": key} if key is not None else {}
    decode |= {"headers": headers} if headers is not None else {}
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": decode,
            "table": {"name": "a.b", "kafka_columns": False} | (table or {}),
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


@pytest.mark.parametrize("source", ["registry", "table", "infer"])
def test_a_key_s_columns_are_written_down(source: str) -> None:
    message = rf"key\.schema\n.*of a key cannot be '{source}': write its columns, .* --subject TOPIC-key"
    with pytest.raises(ValidationError, match=message):
        stream({"format": "avro", "schema": source, "into": "key"})


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
        stream(None, TRACE),
        stream(None, {"trace_id": {"type": "string", "header": "x"}}),
        stream(None, {"trace_id": "string not null"}),
        stream(None, {"trace_id": {"type": "string", "as": "bytes"}}),
        stream(None, {"a": "string", "b": "string"}),
        stream(None, {"b": "string", "a": "string"}),
    ]
    assert len({each.config_hash for each in same}) == 1
    assert len({each.config_hash for each in (*same, *others)}) == 1 + len(others)
    one_way, other_way = {"format": "string", "into": "k"}, {"format": "string", "schema": "`k` string"}
    assert stream(one_way).config_hash == stream(other_way).config_hash


def test_partitions_and_masks_know_them() -> None:
    spec = stream({"format": "string", "into": "k"}, {"at": "timestamptz"}, table={"partition_by": ["day(at)", "k"]})
    assert len(spec.table.partition_by) == 2
