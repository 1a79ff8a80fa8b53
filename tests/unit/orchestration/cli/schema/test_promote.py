"""`frazil schema apply --promote`: shown, asked for, made; rows filled; and told what is left to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from jobs.clients.catalog.catalog import connect_catalog
from jobs.maintenance.backfill import backfill
from jobs.maintenance.run.table_lock import table_lock
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.write.target_writer import TargetWriter
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import create_table, deployment_in

ROWS = [('{"note":"a","z":1}', 0), ('{"note":"b"}', 1), ('{"note":7}', 2), (None, 3)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = deployment_in(tmp_path, "payments")
    keep(home, "id string, amount decimal(12,2), created_at timestamptz")
    deployment = Deployment.at(home)
    with connect_catalog(deployment.prepared_settings()) as catalog:
        create_table(catalog, deployment.stream("payments"))
        table = catalog.load_table("orders.payments")
        for extra, offset in ROWS:
            rows = {"id": f"r{offset}", "_extra": extra, "_kafka_topic": "payments.v1", "_kafka_partition": 0}
            writer = TargetWriter(table.metadata, table.io, file_prefix="b")
            kinds = table.schema().as_arrow()
            names = [*rows, "_kafka_offset"]
            schema = pa.schema([kinds.field(name) for name in names])
            writer.write(pa.RecordBatch.from_pylist([rows | {"_kafka_offset": offset}], schema=schema))
            commit_once(table, Append(writer.close()), summary={}, properties={})
    return home


def keep(home: Path, schema: str) -> None:
    (home / "streams" / "payments.yaml").write_text(
        "stream: payments\nowner: team:payments\nsource: {topics: [payments.v1]}\n"
        f"decode: {{value: json, schema: '{schema}', unknown_fields: keep}}\n"
        "table: {name: orders.payments}\n"
    )


def typed(home: Path, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "schema", "apply", "payments", *words], input=answer)


def rows(home: Path) -> list[tuple[Any, Any]]:
    """Note and what is kept, by offset."""
    found: list[dict[str, Any]] = []
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        table = catalog.load_table("orders.payments")
        for task in table.scan().plan_files():
            with table.io.new_input(task.file.file_path).open() as stream:
                found += pq.ParquetFile(stream).read().to_pylist()  # type: ignore[arg-type]
    return [(row.get("note"), row["_extra"]) for row in sorted(found, key=lambda row: row["_kafka_offset"])]


FILLED = [("a", '{"z":1}'), ("b", None), (None, '{"note":7}'), (None, None)]


def test_a_field_is_promoted_and_earlier_rows_are_filled(home: Path) -> None:
    assert typed(home, "--promote", "$.note", answer="n\n").exit_code == 1
    made = typed(home, "--promote", "$.note", answer="y\n")
    assert made.exit_code == 0, made.output
    lines = made.stdout.splitlines()
    assert lines[:4] == [
        "payments: table orders.payments (schema 0) is to change:",
        "  add column note string",
        "  $.note is kept in 3 rows; null in 0",
        "  its values are of several types; those of the others stay there",
    ]
    assert "  note string" in lines
    assert any("Now add to decode.schema in" in line and line.endswith("streams/payments.yaml:") for line in lines)
    assert "frazil schema apply payments --promote '$.note' --backfill" in made.stdout
    assert 'coalesce(note, get_json_object(_extra, "$.note"))' in made.stdout
    assert rows(home) == [(None, extra) for extra, _ in ROWS]
    keep(home, "id string, amount decimal(12,2), created_at timestamptz, note string")
    filled = typed(home, "--promote", "$.note", "--backfill", "--yes")
    assert filled.exit_code == 0, filled.output
    assert "2 rows have got note: 2 files rewritten, 1 commits." in filled.stdout
    assert "payments.v1[0]@2: wrong_type at $.note" in filled.stdout
    assert rows(home) == FILLED
    assert "has column note" in typed(home, "--promote", "$.note").stdout


def test_json_asks_nothing(home: Path) -> None:
    facts = json.loads(typed(home, "--promote", "$.note", "--backfill", "--json").stdout)
    assert (facts["done"], facts["type"], facts["kept"]) == (False, "string", {"rows": 3, "files": 3, "complete": True})
    facts = json.loads(typed(home, "--promote", "$.note", "--backfill", "--json", "--yes").stdout)
    assert (facts["done"], facts["schema_id"], facts["backfill"]["rows"]) == (True, 1, 2)
    assert facts["backfill"]["left_by_class"] == {"wrong_type": 1}


def test_a_field_that_nobody_has_sent_needs_a_type(home: Path) -> None:
    refused = typed(home, "--promote", "$.nothing")
    assert refused.exit_code == 1
    assert "is kept in none of the rows" in refused.stderr
    assert "--as TYPE" in refused.stderr
    assert typed(home, "--promote", "$.nothing", "--as", "long", "--yes").exit_code == 0


@pytest.mark.parametrize("words", [("--as", "long"), ("--backfill",), ("--promote", "$.a", "--rename", "a=b")])
def test_what_does_not_go_together(home: Path, words: tuple[str, ...]) -> None:
    assert typed(home, *words).exit_code == 2


def test_rows_of_a_gated_stream_are_left_alone(home: Path) -> None:
    file = home / "streams" / "payments.yaml"
    expected = "contract: {expectations: [{expect_column_values_to_not_be_null: {column: id}}]}"
    file.write_text(f"{file.read_text()}{expected}\npublish: {{gate: contract}}\n")
    refused = typed(home, "--promote", "$.note", "--backfill", "--yes")
    assert refused.exit_code == 1
    assert "is published from branch ingest, which takes appends only" in refused.stderr
    assert "without --backfill" in refused.stderr
    assert rows(home)[0][0] is None


def test_a_table_that_is_maintained_is_left_alone(home: Path) -> None:
    settings = Deployment.at(home).settings()
    with connect_catalog(settings) as catalog:
        uuid = str(catalog.load_table("orders.payments").metadata.table_uuid)
    with table_lock(settings, "orders.payments", uuid):
        refused = typed(home, "--promote", "$.note", "--backfill", "--yes")
    assert refused.exit_code == 1
    assert "being maintained" in refused.stderr
    assert "--backfill" in refused.stderr
    assert rows(home)[0][0] is None


def test_a_backfill_stops_where_others_change_the_table_and_is_carried_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others_rewrite(name: str) -> None:
        if name == "backfill_before_commit":
            with connect_catalog(Deployment.at(home).settings()) as catalog:
                table = catalog.load_table("orders.payments")
                table.overwrite(table.scan().to_arrow())

    words = ["--promote", "$.note", "--backfill", "--yes"]
    with monkeypatch.context() as patch:
        patch.setattr(backfill, "step", others_rewrite)
        stopped = typed(home, *words)
    assert stopped.exit_code == 1 and "changed meanwhile; 0 rows are filled, and nothing is lost" in stopped.stderr
    assert "frazil schema apply payments --promote '$.note' --backfill" in " ".join(stopped.stderr.split())
    assert typed(home, *words).exit_code == 0
    assert rows(home) == FILLED


@pytest.mark.parametrize("step", ["backfill_before_commit", "backfill_after_commit"])
def test_a_killed_backfill_is_carried_on(home: Path, step: str) -> None:
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "schema", "apply", "payments"]
    words = ["--promote", "$.note", "--backfill", "--yes"]
    armed = os.environ | {"FRAZIL_STEPS": f"{step}=kill"}
    killed = subprocess.run([*command, *words], env=armed, capture_output=True, text=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert rows(home) == ([(None, extra) for extra, _ in ROWS] if "before" in step else FILLED)
    again = typed(home, *words)
    assert again.exit_code == 0, again.output
    assert rows(home) == FILLED
