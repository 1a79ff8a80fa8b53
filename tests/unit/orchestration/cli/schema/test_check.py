"""`frazil schema check` for a producer's CI: exit codes, sentences and JSON, from files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.types import StringType

from jobs.catalog import connect_catalog
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.schema.schema_change import SchemaChange
from jobs.state.stream_folder import stream_folder
from jobs.stream.schema_proposals import keep_proposal
from orchestration.cli.main import main
from resources.deployment import Deployment
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
    assert said.exit_code == 1
    assert "would become dead letters" in said.stdout


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
    ("stream", "against"), [("payments", "nothing.jsonl"), ("events", "subject:one"), ("payments", "")]
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
