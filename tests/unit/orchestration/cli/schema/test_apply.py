"""`frazil schema apply`: the change is shown, asked for, and made; proposals are made one by one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.types import LongType, StringType

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.tables.schema_proposals import keep_proposal, proposals
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import create_table, deployment_in

NEW = "id string, amount decimal(14,2) not null, created_at timestamptz not null, note string"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = deployment_in(tmp_path, "payments")
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        create_table(catalog, deployment.stream("payments"))
    return home


def typed(home: Path, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "schema", *words], input=answer)


def columns(home: Path) -> list[str]:
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        return catalog.load_table("orders.payments").schema().column_names


def test_the_change_is_shown_and_made_when_asked_for(home: Path) -> None:
    declare(home, NEW)
    refused = typed(home, "apply", "payments", answer="n\n")
    assert refused.exit_code == 1
    assert "note" not in columns(home)
    made = typed(home, "apply", "payments", answer="y\n")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[:4] == [
        "payments: table orders.payments (schema 0) is to change:",
        "  let column id be null",
        "  widen column amount to decimal(14,2)",
        "  add column note string",
    ]
    assert "Done: table orders.payments has schema 1." in made.stdout
    assert typed(home, "diff", "payments").exit_code == 0
    again = typed(home, "apply", "payments", "--yes")
    assert "nothing to change" in again.stdout


def test_a_table_of_format_version_1_is_refused_with_the_command_that_upgrades_it(home: Path) -> None:
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        schema = catalog.load_table("orders.payments").schema()
        catalog.drop_table("orders.payments")
        catalog.create_table("orders.payments", schema, properties={"format-version": "1"})
    declare(home, NEW)
    refused = typed(home, "apply", "payments", "--yes")
    assert refused.exit_code == 1
    assert "table orders.payments is of Iceberg's format version 1" in refused.output
    assert "ALTER TABLE orders.payments SET TBLPROPERTIES ('format-version' = '2')" in refused.output
    assert "note" not in columns(home)


def test_json_changes_nothing_without_yes(home: Path) -> None:
    declare(home, NEW)
    facts = json.loads(typed(home, "apply", "payments", "--json").stdout)
    assert (facts["done"], facts["schema_id"], len(facts["changes"])) == (False, 0, 3)
    assert "note" not in columns(home)
    facts = json.loads(typed(home, "apply", "payments", "--json", "--yes").stdout)
    assert (facts["done"], facts["schema_id"]) == (True, 1)


def test_rows_keep_their_values_under_a_new_name(home: Path) -> None:
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        table = catalog.load_table("orders.payments")
        row = {"id": "a", "amount": Decimal("1.00"), "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
        own = {name: None for name in table.schema().column_names if name.startswith("_kafka")}
        table.append(pa.Table.from_pylist([row | own], schema=table.schema().as_arrow()))
    declare(home, "ident string not null, amount decimal(12,2) not null, created_at timestamptz not null")
    made = typed(home, "apply", "payments", "--rename", "id=ident", "--yes")
    assert made.exit_code == 0, made.output
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        assert catalog.load_table("orders.payments").scan().to_arrow()["ident"].to_pylist() == ["a"]


def test_what_cannot_be_is_refused_as_a_whole(home: Path) -> None:
    declare(home, "id long not null, amount decimal(14,2) not null, created_at timestamptz not null, note string")
    said = typed(home, "apply", "payments", "--yes")
    assert said.exit_code == 1
    assert "id: long is another type than the table's string" in said.stderr
    assert "note" not in columns(home)


def test_a_proposal_is_made_by_its_id(home: Path) -> None:
    deployment = Deployment.at(home)
    store = stream_folder(deployment.settings(), "payments").store
    for name in ("retries", "other"):
        keep_proposal(store, "payments", "orders.payments", SchemaChange("add", (name,), LongType()))
    first = next(each for each in proposals(store) if each.path == ("retries",))
    unknown = typed(home, "apply", "payments", "--proposal", "0", "--yes")
    assert unknown.exit_code == 2
    assert first.digest in unknown.stderr
    made = typed(home, "apply", "payments", "--proposal", first.digest, "--yes")
    assert made.exit_code == 0, made.output
    assert "retries" in columns(home)
    assert [each.path for each in proposals(store)] == [("other",)]


def test_a_proposal_that_looks_like_a_column_names_the_other_way(home: Path) -> None:
    file = home / "streams" / "payments.yaml"
    said = file.read_text()
    columns_of_file = said[said.index("schema:") : said.index("\n", said.index("schema:"))]
    file.write_text(said.replace(columns_of_file, "schema: table") + "evolve: {add: propose}\n")
    store = stream_folder(Deployment.at(home).settings(), "payments").store
    keep_proposal(store, "payments", "orders.payments", SchemaChange("add", ("ident",), StringType(), None, ("id",)))
    (found,) = proposals(store)
    shown = typed(home, "diff", "payments")
    assert f"  Next: {found.command}\n  or, if it is the same under another name: {found.rename}\n" in shown.stdout
    (offer,) = json.loads(typed(home, "diff", "payments", "--json").stdout)["proposals"]
    assert offer["rename"] == found.rename == "frazil schema apply payments --rename id=ident"
    refused = typed(home, "apply", "payments", answer="n\n")
    assert f"ident may be the same under another name; then instead: {found.rename}" in refused.stdout
    assert typed(home, "apply", "payments", "--rename", "id=ident", "--proposal", found.digest).exit_code == 2
    made = typed(home, "apply", "payments", "--rename", "id=ident", "--yes")
    assert made.exit_code == 0, made.output
    assert "ident" in columns(home) and "id" not in columns(home)
    assert "Proposed" not in typed(home, "diff", "payments").stdout


def test_a_column_that_the_file_names_is_not_renamed_from_under_it(home: Path) -> None:
    file = home / "streams" / "payments.yaml"
    said = file.read_text()
    columns_of_file = said[said.index("schema:") : said.index("\n", said.index("schema:"))]
    file.write_text(said.replace(columns_of_file, "schema: table"))
    renamed = typed(home, "apply", "payments", "--rename", "created_at=made_at", "--yes")
    assert renamed.exit_code == 1 and "table.partition_by" in renamed.stderr
    assert "correct streams/payments.yaml first" in renamed.stderr
    assert "created_at" in columns(home)


@pytest.mark.parametrize("there", [True, False])
def test_what_is_asked_for_is_looked_at_also_where_a_table_has_no_rows(
    home: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        monkeypatch.setattr("orchestration.cli.stream_files.schema.apply.is_as_made", lambda *_: True)
    else:
        with connect_catalog(Deployment.at(home).settings()) as catalog:
            catalog.drop_table("orders.payments")
    for words, told in (
        (("--rename", "a"), "'a' renames nothing. write it as --rename OLD=NEW"),
        (("--rename", "a=b"), "a is no column, and nor is b, so nothing is renamed."),
        (("--proposal", "zzz"), "nothing is proposed under zzz; open proposals: none."),
        (("--proposal", "zzz", "--rename", "id=ident"), "--rename goes without --proposal"),
    ):
        said = typed(home, "apply", "payments", *words)
        assert (said.exit_code, said.stdout) == (2, ""), words
        assert told in said.stderr
    for rename in ("id=ident", "old=id"):
        said = typed(home, "apply", "payments", "--rename", rename, "--rename", "id=other", "--rename", "other=last")
        assert (said.exit_code, "has no rows" in said.stdout) == (0, True)
    facts = json.loads(typed(home, "apply", "payments", "--json").stdout)
    schema_id = facts.pop("schema_id")
    assert facts == {"stream": "payments", "table": "orders.payments", "changes": [], "done": False}
    assert (schema_id is not None) is there


def declare(home: Path, columns: str) -> None:
    file = home / "streams" / "payments.yaml"
    old = "id string not null, amount decimal(12,2) not null, created_at timestamptz not null"
    file.write_text(file.read_text().replace(old, columns))


def diff(home: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "schema", "diff", "payments", *options])


def test_no_difference_is_said(home: Path) -> None:
    said = diff(home)
    assert said.exit_code == 0
    assert said.stdout.startswith("payments: no difference; ")


def test_what_the_table_lacks_is_named_with_the_next_command(home: Path) -> None:
    declare(home, "id string, amount decimal(14,2) not null, created_at timestamptz not null, note string")
    said = diff(home)
    assert said.exit_code == 1
    lines = [line.split("  ") for line in said.stdout.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines[2:5]] == [
        ["id", "now optional", "string", "string not null", "the table requires it; apply lets it be null"],
        ["amount", "widened", "decimal(14,2) not null", "decimal(12,2) not null",
         "the table's type does not fit it; apply widens it"],
        ["note", "added", "string", "–", "the table lacks it; apply adds it"],
    ]  # fmt: skip
    assert said.stdout.endswith("  Next: frazil schema apply payments\n")


def test_a_difference_that_costs_nothing_is_no_failure(home: Path) -> None:
    deployment = Deployment.at(home)
    with (
        connect_catalog(deployment.prepared_settings()) as catalog,
        catalog.load_table("orders.payments").update_schema() as update,
    ):
        update.add_column("channel", StringType())
    facts = json.loads(diff(home, "--json").stdout)
    assert facts["fits"] is True
    assert [(each["column"], each["outcome"]) for each in facts["differences"]] == [("channel", "null")]
    assert facts["schema_id"] == 1


def test_what_no_change_mends_is_for_the_file(home: Path) -> None:
    declare(home, "id long not null, amount decimal(12,2) not null, created_at timestamptz not null")
    said = diff(home)
    assert said.exit_code == 1
    assert said.stdout.endswith("  Next: correct decode.schema of stream payments\n")


def test_a_table_that_is_not_there_yet_is_no_difference(tmp_path: Path) -> None:
    said = diff(deployment_in(tmp_path, "payments"))
    assert (said.exit_code, said.stdout) == (
        0,
        "payments: table orders.payments does not exist yet; the first run creates it.\n",
    )
