"""Columns of a new table that no file declares: of the newest schemas of values and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.topic_sample import SampleRecord
from jobs.config.services.registry import RegistrySettings
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables import first_records
from jobs.streaming.driver.tables.new_rows import NewColumns, SchemaAwaitedError, new_columns
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.registry_server import RegistryServer, serving

LOG = LogState({"t": "id"}, {}, {})
KEY = ("AVRO", '{"type":"record","name":"K","fields":[{"name":"n","type":"long"},{"name":"s","type":"string"}]}')
VALUE = ("AVRO", '{"type":"record","name":"V","fields":[{"name":"id","type":"string"}]}')
JSON_KEY = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serving(RegistryServer(newest={"t-value": VALUE, "t-key": KEY})) as running:
        yield running


def stream(key: Any = None, value: str = "avro", schema: str = "registry", **table: Any) -> StreamSpec:
    given = {"format": "avro", "schema": "registry", "into": "key"} | (key or {})
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": value, "schema": schema, "key": given},
            "table": {"name": "a.b", **table},
        }
    )


def made(server: RegistryServer, spec: StreamSpec) -> NewColumns:
    registry = RegistrySettings.model_validate({"url": server.url, "timeout": "5s"})
    settings: Any = SimpleNamespace(registry=registry)
    return new_columns(spec, settings, LOG)


def key_text(columns: NewColumns) -> list[str]:
    return [f"{each.name} {schema_text(each.field_type)} {each.required}" for each in columns.key or ()]


@pytest.mark.parametrize(
    ("format_", "kind", "text", "columns"),
    [
        ("avro", *KEY, ["n long True", "s string True"]),
        ("json_schema", "JSON", json.dumps(JSON_KEY), ["n long True"]),
        ("protobuf", "PROTOBUF", 'syntax = "proto3"; message K { string s = 1; }', ["s string False"]),
        ("avro", "AVRO", '"long"', ["value long True"]),
    ],
)
def test_a_table_has_the_columns_of_the_newest_schemas_of_values_and_keys(
    server: RegistryServer, format_: str, kind: str, text: str, columns: list[str], tmp_path: Path
) -> None:
    server.newest["t-key"] = (kind, text)
    spec = stream({"format": format_})
    found = made(server, spec)
    assert (found.rows.column_names, key_text(found)) == (["id"], columns)
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        ensure_tables(spec, catalog, lambda: found)
        table = catalog.load_table("a.b").schema()
        assert [each.name for each in table.fields][:2] == ["id", "key"]
        key = spec.record_columns_for(table).key
        assert key is not None
        assert [each.name for each in key.rows.fields] == [each.split()[0] for each in columns]
        # From now on the table says: nobody is asked.
        ensure_tables(spec, catalog)


def test_a_subject_that_is_named_counts(server: RegistryServer) -> None:
    server.newest["other"] = ("AVRO", KEY[1].replace('"n"', '"m"'))
    assert key_text(made(server, stream({"subject": "other"})))[0] == "m long True"


def test_columns_of_values_that_are_declared_stand_beside_those_of_a_subject_of_keys(
    server: RegistryServer, tmp_path: Path
) -> None:
    del server.newest["t-value"]
    spec = stream(value="json", schema="id string")
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        with pytest.raises(FrazilError, match="does not exist, and the stream's file does not declare its columns"):
            ensure_tables(spec, catalog)
        ensure_tables(spec, catalog, lambda: made(server, spec))
        # Without rows it follows the file, and keeps what it says of keys. Nobody is asked.
        ensure_tables(stream(value="json", schema="id string, note string"), catalog)
        table = catalog.load_table("a.b")
        text = {each.name: schema_text(each.field_type) for each in table.schema().fields[:3]}
        assert text == {"id": "string", "note": "string", "key": "struct<n long not null, s string not null>"}
        table.transaction().set_properties({"somebody": "was here"}).commit_transaction()
        with table.update_schema() as change:
            change.delete_column("note")
        with pytest.raises(FrazilError, match="Column note is declared, but the table has no such column") as refused:
            ensure_tables(stream(value="json", schema="id string, note string"), catalog)
        assert (refused.value.fix or "").startswith("frazil schema apply s")


def test_a_key_that_is_declared_asks_for_no_subject(server: RegistryServer) -> None:
    del server.newest["t-key"]
    assert made(server, stream({"schema": "n long"})).key is None


EMPTY = '{"type":"record","name":"R","fields":[]}'


@pytest.mark.parametrize(
    ("key", "newest", "said", "fix"),
    [
        ({}, None, "the registry has no subject t-key, whose newest", "decode.key.subject of streams/s.yaml"),
        ({}, ("PROTOBUF", ""), "decode.key.format is avro, and subject t-key", "correct decode.key.format in streams"),
        ({}, ("AVRO", EMPTY), "subject t-key, version 1, makes no table", "in decode.key.schema of streams"),
        ({"schema": "table"}, KEY, "decode.key.schema is 'table', and there is no", "say with decode.key.schema where"),
    ],
)
def test_without_a_schema_of_keys_there_is_no_table(
    server: RegistryServer, key: Any, newest: tuple[str, str] | None, said: str, fix: str
) -> None:
    server.newest.pop("t-key")
    if newest is not None:
        server.newest["t-key"] = newest
    with pytest.raises(FrazilError) as refused:
        made(server, stream(key))
    assert said in refused.value.message
    assert fix in (refused.value.fix or "")
    assert isinstance(refused.value, SchemaAwaitedError) == (newest is None)


@pytest.mark.parametrize(
    ("keys", "into", "lands"),
    [
        ((None, None), "_change_key", True),
        ((None, None), "_change_key not null", False),
        ((None, b"key"), "_change_key", False),
        ((), "_change_key", False),
    ],
)
def test_changes_without_keys_need_no_schema_of_keys(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, keys: tuple[bytes | None, ...], into: str, lands: bool
) -> None:
    server.newest.pop("t-key")
    at = TopicPartition("t", 0)
    found = [SampleRecord(at, offset, b"value", key) for offset, key in enumerate(keys)]
    monkeypatch.setattr(first_records, "read_sample", lambda settings, ranges: iter([found]))
    spec = stream({"into": into})
    spec = spec.model_validate({**spec.model_dump(by_alias=True), "changes": "debezium"})
    settings: Any = SimpleNamespace(registry=RegistrySettings.model_validate({"url": server.url}), kafka=None)
    log = LogState({"t": "id"}, {at: 0}, {at: len(found)})
    if lands:
        assert new_columns(spec, settings, log, {at: 0}).key == ()
    else:
        with pytest.raises(SchemaAwaitedError):
            new_columns(spec, settings, log, {at: 0})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            [{"name": "_kafka_offset", "type": "long"}],
            "the field _kafka_offset would be a column, and names that start with _kafka are kept",
        ),
        ([], "makes no table: records without a field"),
    ],
)
def test_a_schema_of_values_that_makes_no_columns_makes_no_table(
    server: RegistryServer, fields: list[dict[str, str]], said: str
) -> None:
    server.newest["t-value"] = ("AVRO", json.dumps({"type": "record", "name": "V", "fields": fields}))
    with pytest.raises(FrazilError) as refused:
        made(server, stream())
    assert said in refused.value.message


def test_columns_of_a_key_are_optional_where_that_is_asked_for_but_for_identifier_fields(
    server: RegistryServer, tmp_path: Path
) -> None:
    spec = stream({"into": "key not null"}, force_optional=True, identifier_fields=["key.n"])
    found = made(server, spec)
    assert key_text(found) == ["n long True", "s string False"]
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        ensure_tables(spec, catalog, lambda: found)
        table = catalog.load_table("a.b").schema()
        assert table.identifier_field_ids == [table.find_field("key.n").field_id]


def test_a_column_of_the_value_with_the_name_of_the_key_s_is_refused_with_its_place(tmp_path: Path) -> None:
    rows = iceberg_schema(parse_schema("id string, Key string"))
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        with pytest.raises(FrazilError, match=r"streams/s\.yaml: decode\.key: 'Key' is a column of decode\.schema"):
            ensure_tables(stream(), catalog, lambda: NewColumns(rows, key_of("n long").fields))
        assert not catalog.table_exists("a.b")


@pytest.mark.parametrize(("columns", "said"), [("id string", "has no column key"), ("key string", "is string, no")])
def test_a_table_that_does_not_say_them_is_not_written(tmp_path: Path, columns: str, said: str) -> None:
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        catalog.create_namespace("a")
        catalog.create_table("a.b", iceberg_schema(parse_schema(columns)), properties={"format-version": "2"})
        with pytest.raises(FrazilError, match=rf"streams/s\.yaml: decode\.key\.schema: .*{said}") as refused:
            ensure_tables(stream({"schema": "table"}, schema="table"), catalog)
        assert refused.value.fix == "correct streams/s.yaml"


def key_of(columns: str) -> Schema:
    return iceberg_schema(parse_schema(columns))
