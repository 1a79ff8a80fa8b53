"""`frazil schema check` for a producer's CI: exit codes, sentences and JSON, from files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.types import LongType, NestedField, StringType, StructType

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.tables.schema_proposals import keep_proposal
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.helpers.registry_server import RegistryServer, serving
from tests.unit.orchestration.deployments import create_table, deployment_in

PROTO = 'syntax = "proto3"; message M { string id = 1; int32 n = 2;%s }'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = deployment_in(tmp_path, "payments")
    (home / "streams" / "events.yaml").write_text(
        "stream: events\nsource: {topics: [events]}\ndecode: {value: protobuf, schema: registry}\n"
        "table: {name: orders.events}\nevolve: {add: propose}\n"
    )
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        create_table(catalog, deployment.stream("payments"))
        catalog.create_table(
            "orders.events",
            deployment.stream("events").table_schema_of(iceberg_schema(parse_schema("id string, n int"))),
        )
    return home


def check(home: Path, stream: str, against: Path | str, *options: str) -> Result:
    return CliRunner().invoke(
        main, ["--home", str(home), "schema", "check", stream, "--against", str(against), *options]
    )


def schema_file(home: Path, more: str = "") -> Path:
    file = home / "m.proto"
    file.write_text(PROTO % more)
    return file


def test_a_schema_that_fits_is_no_failure(home: Path) -> None:
    said = check(home, "events", schema_file(home))
    assert said.exit_code == 0, said.output


def test_a_change_that_somebody_has_to_decide_fails_the_build(home: Path) -> None:
    said = check(home, "events", schema_file(home, " string more = 3;"))
    assert said.exit_code == 1
    assert "proposed: evolve.add is propose" in said.stdout
    facts = json.loads(check(home, "events", schema_file(home, " string more = 3;"), "--json").stdout)
    assert facts["verdict"] == "warn"
    assert [(each["column"], each["outcome"]) for each in facts["differences"] if each["outcome"] != "lands"] == [
        ("more", "proposed")
    ]


def test_a_schema_that_cannot_be_read_fails_the_build(home: Path) -> None:
    file = home / "m.proto"
    file.write_text("no schema")
    said = check(home, "events", file)
    assert (said.exit_code, said.stdout) == (2, "")
    assert f"{file} has no schema, as protoc refuses it: " in said.stderr
    # One that protoc takes, and no column.
    file.write_text('syntax = "proto3"; message Node {}')
    said = check(home, "events", file)
    assert said.exit_code == 1
    assert "would become dead letters" in said.stdout


AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}
JSON_SCHEMA = {"type": "object", "required": ["id", "n"], "properties": {
    "id": {"type": "string"}, "n": {"type": "integer", "connect.type": "int32"}}}  # fmt: skip
CONNECT = {"type": "struct", "fields": [
    {"field": "id", "type": "string"}, {"field": "n", "type": "int32"}]}  # fmt: skip


def _bigger(text: str) -> str:
    """The same with a field more."""
    return (
        text.replace('{"name": "n"', '{"name": "more", "type": "string"}, {"name": "n"')
        .replace('"n": {"type"', '"more": {"type": "string"}, "n": {"type"')
        .replace('{"field": "n"', '{"field": "more", "type": "string"}, {"field": "n"')
        .replace("int32 n = 2;", "int32 n = 2; string more = 3;")
    )


@pytest.mark.parametrize(
    ("format_", "source", "schema", "broken", "unusable"),
    [
        ("avro", "registry", json.dumps(AVRO), '{"type": "record", "name": "R"}', '"null"'),
        ("protobuf", "registry", PROTO % "", "no schema", 'syntax = "proto3"; message Node {}'),
        ("json_schema", "registry", json.dumps(JSON_SCHEMA), "[]", "true"),
        ("connect_json", "table", json.dumps(CONNECT), "{}", '{"type": "struct", "fields": []}'),
    ],
)
def test_each_format_with_a_schema_in_a_file(
    tmp_path: Path, format_: str, source: str, schema: str, broken: str, unusable: str
) -> None:
    home = deployment_in(tmp_path)
    stream = home / "streams" / "s.yaml"

    def write(add: str) -> None:
        stream.write_text(
            f"stream: s\nsource: {{topics: [t]}}\ndecode: {{value: {format_}, schema: {source}}}\n"
            f"table: {{name: orders.s}}\nevolve: {{add: {add}, widen: ignore}}\n"
        )

    write("auto")
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        catalog.create_namespace_if_not_exists("orders")
        columns = deployment.stream("s").table_schema_of(iceberg_schema(parse_schema("id string, n int")))
        catalog.create_table("orders.s", columns)
    file = tmp_path / "schema"

    def verdict(text: str) -> tuple[int, dict[str, str], str | None]:
        file.write_text(text)
        said = check(home, "s", file, "--json")
        facts = json.loads(said.stdout)
        assert (facts["stream"], facts["table"], facts["against"], facts["version"]) == (
            "s",
            "orders.s",
            str(file),
            None,
        )
        assert facts["verdict"] == {0: "ok"}.get(said.exit_code, facts["verdict"])
        return said.exit_code, {each["column"]: each["outcome"] for each in facts["differences"]}, facts["problem"]

    exit_code, outcomes, problem = verdict(schema)
    assert (exit_code, problem) == (0, None)
    assert set(outcomes.values()) <= {"lands"}
    exit_code, outcomes, _ = verdict(_bigger(schema))
    assert (exit_code, outcomes["more"]) == (0, "changes_table")
    for add, exit_code, outcome in (("propose", 1, "proposed"), ("ignore", 0, "left_out"), ("fail", 1, "stops")):
        write(add)
        said = verdict(_bigger(schema))
        assert (said[0], said[1]["more"]) == (exit_code, outcome)
    file.write_text(broken)
    said = check(home, "s", file, "--json")
    assert (said.exit_code, said.stdout) == (2, "")
    assert f"{file} has no schema, as " in said.stderr
    exit_code, outcomes, problem = verdict(unusable)
    assert (exit_code, outcomes) == (1, {})
    assert problem


def test_a_schema_of_keys_is_held_against_the_columns_of_keys(home: Path) -> None:
    events = home / "streams" / "events.yaml"
    assert check(home, "events", schema_file(home), "--key").exit_code == 2
    events.write_text(
        events.read_text().replace("schema: registry}", "schema: registry, key: {format: avro, schema: 'k long'}}")
    )
    file = home / "key.avsc"
    key = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}
    file.write_text(json.dumps(key))
    said = check(home, "events", file, "--key")
    assert said.exit_code == 0, said.output
    assert said.stdout.rstrip().endswith("lands: the column takes it")
    key["fields"].append({"name": "more", "type": "string"})  # type: ignore[attr-defined]
    file.write_text(json.dumps(key))
    facts = json.loads(check(home, "events", file, "--key", "--json").stdout)
    assert facts["verdict"] == "ok"
    assert {each["column"]: each["outcome"] for each in facts["differences"]} == {"k": "lands", "more": "left_out"}
    file.write_text(json.dumps(key).replace('"long"', '"string"'))
    said = check(home, "events", file, "--key")
    assert said.exit_code == 1
    assert "Next: keep its records from being produced" in said.stdout


def test_a_schema_of_keys_is_held_against_the_struct_that_the_table_has_of_them(home: Path) -> None:
    events = home / "streams" / "events.yaml"
    key = "key: {format: avro, schema: registry, into: key}"
    events.write_text(events.read_text().replace("schema: registry}", f"schema: registry, {key}}}"))
    file = home / "key.avsc"
    fields: list[dict[str, str]] = [{"name": "k", "type": "long"}, {"name": "more", "type": "string"}]
    file.write_text(json.dumps({"type": "record", "name": "K", "fields": fields}))
    said = check(home, "events", file, "--key")
    assert said.exit_code == 1
    assert "the table has no column key" in said.output
    said = check(home, "events", file, "--key", "--json")
    assert (said.exit_code, "no column key" in json.loads(said.stdout)["problem"]) == (1, True)
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        with catalog.load_table("orders.events").update_schema() as change:
            change.add_column("key", StructType(NestedField(1, "number", LongType()), NestedField(2, "x", LongType())))
        table = catalog.load_table("orders.events")
        mapping = json.loads(table.schema().name_mapping.model_dump_json())
        mapping[-1]["fields"][0]["names"] = ["number", "k"]
        with table.transaction() as change:
            change.set_properties({NAME_MAPPING: json.dumps(mapping)})
    facts = json.loads(check(home, "events", file, "--key", "--json").stdout)
    assert facts["verdict"] == "ok"
    outcomes = {each["column"]: each["outcome"] for each in facts["differences"]}
    assert outcomes == {"number": "lands", "more": "left_out", "x": "null"}
    file.write_text(file.read_text().replace('"long"', '"string"'))
    assert check(home, "events", file, "--key").exit_code == 1
    with connect_catalog(deployment.prepared_settings()) as catalog:
        catalog.drop_table("orders.events")
    said = check(home, "events", file, "--key")
    assert (said.exit_code, "does not exist yet; the first run makes it" in said.stdout) == (0, True)


def test_records_of_json_are_decoded_as_the_stream_does(home: Path) -> None:
    file = home / "records.jsonl"
    good = {"id": "a", "amount": 1.25, "created_at": "2026-01-31T00:00:00Z"}
    file.write_text(json.dumps(good) + "\n\n" + json.dumps(good | {"note": "x"}) + "\n")
    said = check(home, "payments", file)
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines() == [
        f"payments: of 2 records in {file} 2 would land.",
        "  $.note is left out of 1 records: no column takes it",
    ]
    file.write_text(json.dumps(good | {"amount": "a lot"}) + "\n")
    said = check(home, "payments", file, "--json")
    assert said.exit_code == 1
    assert [each["class"] for each in json.loads(said.stdout)["failures"]] == ["wrong_type"]


@pytest.mark.parametrize(
    ("stream", "against"),
    [("payments", "nothing.jsonl"), ("events", "subject:one"), ("events", "subject:0"), ("payments", "")],
)
def test_a_wrong_question_is_no_verdict(home: Path, stream: str, against: str) -> None:
    assert check(home, stream, against).exit_code == 2


def test_diff_shows_proposals_and_a_registry_that_cannot_be_asked(home: Path) -> None:
    store = stream_folder(Deployment.at(home).settings(), "events").store
    keep_proposal(store, "events", "orders.events", SchemaChange("add", ("more",), StringType()))
    said = CliRunner().invoke(main, ["--home", str(home), "schema", "diff", "events"])
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert lines[0] == "events: its columns are from: registry; the file declares none."
    assert lines[1].startswith("The registry was not asked: ")
    assert lines[2] == "Proposed: add column more string"
    assert lines[3].startswith("  Next: frazil schema apply events --proposal ")


def test_a_table_that_is_not_there_yet_is_judged_by_the_file_or_made_of_the_records(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    file = home / "records.jsonl"
    good = {"id": "a", "amount": 1.25, "created_at": "2026-01-31T00:00:00Z"}
    file.write_text(json.dumps(good) + "\n")
    assert check(home, "payments", file).exit_code == 0
    file.write_text(json.dumps(good | {"amount": "a lot"}) + "\n")
    assert check(home, "payments", file).exit_code == 1
    (home / "streams" / "events.yaml").write_text(
        "stream: events\nsource: {topics: [events]}\ndecode: {value: protobuf, schema: registry}\n"
        "table: {name: orders.events}\n"
    )
    said = check(home, "events", schema_file(home))
    assert said.exit_code == 0, said.output
    assert said.stdout == "events: table orders.events does not exist yet; the first run makes it of the records.\n"
    facts = json.loads(check(home, "events", schema_file(home), "--json").stdout)
    assert (facts["verdict"], facts["schema_id"], facts["differences"]) == ("ok", None, [])
    (home / "m.proto").write_text("no schema")
    assert check(home, "events", home / "m.proto").exit_code == 2
    assert check(home, "events", "nothing:x").exit_code == 2


@pytest.fixture
def server(home: Path) -> Iterator[RegistryServer]:
    """The registry of the settings."""
    with serving(RegistryServer()) as running:
        (home / "frazil.yaml").write_text(f"registry: {{url: '{running.url}', timeout: 5s}}\n")
        yield running


@pytest.mark.parametrize("broken", [(503, "{}"), (401, "{}"), (404, "<html>"), (200, "<html>")])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_registry_that_does_not_answer_is_no_verdict(
    home: Path, server: RegistryServer, broken: tuple[int, str], options: tuple[str, ...]
) -> None:
    server.broken = broken
    said = check(home, "events", "events-value", *options)
    assert (said.exit_code, said.stdout) == (3, ""), said.output
    assert said.stderr.startswith("Error: The schema registry at ")
    for missing in ("nope.proto", "schemas/nope"):
        said = check(home, "events", missing, *options)
        assert (said.exit_code, said.stdout) == (2, "")
        assert f"there is no file {missing}" in said.stderr


def test_settings_without_a_registry_are_no_verdict(home: Path) -> None:
    said = check(home, "events", "events-value")
    assert (said.exit_code, "names no schema registry" in said.stderr) == (3, True)
    said = check(home, "events", "nope.proto")
    assert (said.exit_code, "there is no file nope.proto" in said.stderr) == (2, True)
    assert check(home, "none", "nope.proto").exit_code == 3


def test_a_subject_or_version_that_is_not_there_is_told_in_own_words(home: Path, server: RegistryServer) -> None:
    said = check(home, "events", "events-value")
    assert said.exit_code == 2
    assert "events-value is no file, and the registry has no subject events-value" in said.stderr
    server.subjects = {"events-value": [3, 1]}
    said = check(home, "events", "events-value:99")
    assert (said.exit_code, said.stdout) == (2, "")
    assert "Error: subject events-value has no version 99; versions: 1, 3" in said.stderr
    assert "null" not in said.stderr
    server.newest = {"nope.proto": ("PROTOBUF", PROTO % "")}
    assert check(home, "events", "nope.proto").exit_code == 0


@pytest.mark.parametrize("value", ["avro", "json_schema", "connect_json"])
def test_a_file_that_is_no_json_has_no_schema(home: Path, value: str) -> None:
    events = home / "streams" / "events.yaml"
    source = "table" if value == "connect_json" else "registry"
    events.write_text(events.read_text().replace("protobuf, schema: registry", f"{value}, schema: {source}"))
    file = home / "m.avsc"
    file.write_text('{"type": "record",\n')
    said = check(home, "events", file, "--json")
    assert (said.exit_code, said.stdout) == (2, ""), said.output
    assert f"{file} has no schema, as it is no JSON: " in said.stderr
    assert "at line 2, column 1" in said.stderr
    file.write_bytes(b"\xff{}")
    assert check(home, "events", file).exit_code == 2


def test_the_name_of_an_avro_type_is_a_schema_without_quotation_marks(home: Path) -> None:
    events = home / "streams" / "events.yaml"
    events.write_text(events.read_text().replace("protobuf", "avro"))
    file = home / "m.avsc"
    file.write_text("string")
    assert check(home, "events", file).exit_code == 1


def test_a_renamed_field_is_told_and_fails_no_build_where_records_land(home: Path) -> None:
    file = home / "streams" / "events.yaml"
    file.write_text(file.read_text().replace("add: propose", "add: auto"))
    renamed = schema_file(home)
    renamed.write_text(renamed.read_text().replace("string id", "string ids"))
    said = check(home, "events", renamed)
    assert said.exit_code == 0
    told = "column id may be called ids now: frazil schema apply events --rename id=ids keeps its values together."
    assert said.stdout.splitlines()[-1] == f"Nothing is renamed by itself; {told}"
    facts = json.loads(check(home, "events", renamed, "--json").stdout)
    assert facts["renames"] == [{"old": "id", "new": "ids"}]
    assert json.loads(check(home, "events", schema_file(home), "--json").stdout)["renames"] == []
    # Once it is done, records of either schema land in the one column.
    apply = ["--home", str(home), "schema", "apply", "events", "--rename", "id=ids"]
    shown = CliRunner().invoke(main, apply, input="y\n")
    assert shown.exit_code == 0, shown.output
    assert "rename column id to ids" in shown.stdout
    assert "A driver that writes the old name ends" not in shown.stdout
    assert "Done: table orders.events has schema 1.\n" in shown.stdout
    for schema in (renamed, schema_file(home)):
        facts = json.loads(check(home, "events", schema, "--json").stdout)
        assert [each for each in facts["differences"] if each["outcome"] != "lands"] == [] and facts["renames"] == []


def test_a_renamed_field_in_examples_is_told(home: Path) -> None:
    (home / "streams" / "notes.yaml").write_text(
        "stream: notes\nsource: {topics: [notes]}\ndecode: {value: json, schema: infer}\ntable: {name: orders.notes}\n"
    )
    deployment = Deployment.at(home)
    with connect_catalog(deployment.settings()) as catalog:
        rows = iceberg_schema(parse_schema("id string, note string"))
        catalog.create_table("orders.notes", deployment.stream("notes").table_schema_of(rows))
    file = home / "records.jsonl"
    file.write_text('{"id": "a", "note": "x"}\n{"id": "b", "note_text": "x"}\n')
    facts = json.loads(check(home, "notes", file, "--json").stdout)
    assert facts["renames"] == [{"old": "note", "new": "note_text"}]
    assert "frazil schema apply notes --rename note=note_text keeps" in check(home, "notes", file).stdout
