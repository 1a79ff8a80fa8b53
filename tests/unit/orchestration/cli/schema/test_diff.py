"""`frazil schema diff` on a real catalog: the table that a file is held against, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.types import StringType

from jobs.catalog import connect_catalog
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import create_table, deployment_in


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = deployment_in(tmp_path, "payments")
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        create_table(catalog, deployment.stream("payments"))
    return home


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
         "the table's type does not hold it; apply widens it"],
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
        "payments: table orders.payments is not there yet; the first run creates it.\n",
    )
