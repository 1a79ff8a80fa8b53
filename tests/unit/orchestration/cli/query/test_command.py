"""`frazil query` on real tables: first rows, SQL, branches, snapshots, filters and what it refuses."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from jobs.clients.catalog.catalog import connect_catalog
from orchestration.cli.main import main
from orchestration.cli.tables.query.iceberg_dataset import IcebergDataset
from orchestration.cli.tables.query.output import print_as_table
from resources.deployment import Deployment
from tests.helpers.real_stream import RealStream
from tests.helpers.stream_history import FAILED, ROW
from tests.unit.orchestration.deployments import create_table, deployment_in

BEGIN = datetime(2026, 1, 31, 22, 30, tzinfo=UTC)


def rows(table: Table, first: int, count: int) -> pa.Table:
    """Rows with the ids p-FIRST and so on, an amount of that number and a cent, an hour from one to the next."""
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    numbers = range(first, first + count)
    made: dict[str, list[Any]] = {
        "id": [f"p-{number}" for number in numbers],
        "amount": [Decimal(number) + Decimal("0.01") for number in numbers],
        "created_at": [BEGIN + timedelta(hours=number) for number in numbers],
        "_kafka_topic": ["payments.v1"] * count,
        "_kafka_partition": [0] * count,
        "_kafka_offset": list(numbers),
        "_kafka_timestamp": [BEGIN] * count,
    }
    return pa.table({name: made[name] for name in schema.names}, schema=schema)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return deployment_in(tmp_path, "payments")


@pytest.fixture
def catalog(home: Path) -> Catalog:
    return connect_catalog(Deployment.at(home).prepared_settings())


@pytest.fixture
def table(home: Path, catalog: Catalog) -> Table:
    create_table(catalog, Deployment.at(home).stream("payments"))
    made = catalog.load_table("orders.payments")
    for first in (0, 10, 20):
        made.append(rows(made, first, 10))
    return made


def command(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "query", "payments", *arguments])


def facts(home: Path, *arguments: str) -> dict[str, Any]:
    result = command(home, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def error(home: Path, *arguments: str) -> str:
    result = command(home, *arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert "Next: " in result.stderr and "Traceback" not in result.stderr
    return result.stderr


def test_first_rows_are_exact_and_in_utc(home: Path, table: Table) -> None:
    shown = facts(home)
    assert (shown["stream"], shown["table"], len(shown["rows"])) == ("payments", "orders.payments", 20)
    assert {"name": "amount", "type": "decimal128(12, 2)"} in shown["columns"]
    (row,) = facts(home, "--where", "id = 'p-3'")["rows"]
    assert row["amount"] == "3.01" and row["created_at"] == "2026-02-01T01:30:00Z" and row["_kafka_offset"] == 3
    assert len(facts(home, "--limit", "3")["rows"]) == 3
    assert len(facts(home, "--limit", "100")["rows"]) == 30


@pytest.mark.parametrize(
    "name", ["rows", "payments", "orders.payments", "frazil.orders.payments", '"orders.payments"', "ROWS", "p2"]
)
def test_the_main_table_by_each_of_its_names(home: Path, table: Table, name: str) -> None:
    sql = f"WITH p2 AS (FROM rows) SELECT sum(amount) AS total, max(created_at) AS newest, count(*) AS n FROM {name}"
    assert facts(home, sql)["rows"] == [{"total": "435.30", "newest": "2026-02-02T03:30:00Z", "n": 30}]


def test_conditions_on_columns_that_are_not_selected(home: Path, table: Table) -> None:
    sql = "SELECT amount FROM rows WHERE id IN ('p-4', 'p-25') AND _kafka_partition = 0 ORDER BY ALL"
    assert [row["amount"] for row in facts(home, sql)["rows"]] == ["4.01", "25.01"]
    assert facts(home, "SELECT count(*) AS n FROM rows WHERE amount > 20")["rows"] == [{"n": 10}]
    joined = "SELECT count(*) AS n FROM rows a JOIN orders.payments b USING (id)"
    assert facts(home, joined)["rows"] == [{"n": 30}]


def test_a_table_within_80_columns(home: Path, table: Table) -> None:
    narrow = command(home, "SELECT id, amount, created_at, NULL AS n FROM rows ORDER BY amount LIMIT 2").stdout
    assert narrow.splitlines() == [
        "id   amount  created_at            n",
        "p-0    0.01  2026-01-31 22:30:00Z  –",
        "p-1    1.01  2026-01-31 23:30:00Z  –",
        "(2 rows)",
    ]
    wide = command(home, "--limit", "1").stdout
    assert wide.splitlines()[0] == "row 1" and "  amount            " in wide
    long = command(home, "SELECT repeat('x', 500) AS text, chr(27) AS escape FROM rows LIMIT 1").stdout
    for line in (wide + long).splitlines():
        assert len(line) <= 80
    assert "\x1b" not in long and "\\x1b" in long


def test_csv_has_every_row(home: Path, table: Table) -> None:
    printed = command(home, "SELECT id, amount, NULL AS n, ['a', 'b'] AS l FROM rows ORDER BY amount", "--csv").stdout
    read = list(csv.reader(io.StringIO(printed)))
    assert read[:2] == [["id", "amount", "n", "l"], ["p-0", "0.01", "", '["a", "b"]']] and len(read) == 31


def test_one_of_the_earlier_snapshots(home: Path, table: Table) -> None:
    first = table.snapshots()[0].snapshot_id
    assert facts(home, "SELECT count(*) AS n FROM rows", "--snapshot", str(first))["rows"] == [{"n": 10}]
    assert len(facts(home, "--snapshot", str(first))["rows"]) == 10
    assert "has no snapshot 5" in error(home, "--snapshot", "5")


def test_branches(home: Path, catalog: Catalog, table: Table) -> None:
    table.manage_snapshots().create_branch(table.snapshots()[1].snapshot_id, "trial").commit()
    assert facts(home, "SELECT count(*) AS n FROM rows", "--branch", "trial")["rows"] == [{"n": 20}]
    assert "--branch main or trial" in error(home, "--branch", "none")
    assert "both" in error(home, "--branch", "trial", "--snapshot", "1")


def test_a_stream_that_publishes_shows_what_readers_see(tmp_path: Path) -> None:
    stream = RealStream(tmp_path, gated=True)
    stream.land([ROW, ROW, ROW])
    assert stream.publish() == "published"
    stream.land([ROW, ROW])
    count = "SELECT count(*) AS n FROM rows"
    assert facts(tmp_path, count)["rows"] == [{"n": 3}]
    assert facts(tmp_path, count, "--branch", stream.spec.branch_of(stream.sink))["rows"] == [{"n": 5}]


def test_dead_letters_beside_rows(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW, FAILED, ROW, FAILED])
    assert [row["offset"] for row in facts(tmp_path, "--dead-letters")["rows"]] == [1, 3]
    assert [row["offset"] for row in facts(tmp_path, "--dead-letters", "--where", "offset > 1")["rows"]] == [3]
    sql = "SELECT (SELECT count(*) FROM rows) AS r, (SELECT max(d.offset) FROM dead_letters d) AS d"
    assert facts(tmp_path, sql)["rows"] == [{"r": 2, "d": 3}]
    assert len(facts(tmp_path, "SHOW TABLES")["rows"]) == 6


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM rows", "DELETE"),
        ("CREATE TABLE t AS FROM rows", "CREATE"),
        ("COPY rows TO '{home}/out.csv'", "COPY"),
        ("EXPLAIN ANALYZE COPY rows TO '{home}/out.csv'", "Permission Error"),
        ("ATTACH '{home}/out.csv'", "ATTACH"),
        ("INSTALL httpfs", "LOAD"),
        ("SET enable_external_access = true", "SET"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("", "0 statements"),
        ("FROM read_text('{home}/streams/payments.yaml')", "Permission Error"),
        ("FROM '{home}/streams/payments.yaml'", "cannot be run"),
        ("SELECT amunt FROM rows", "amount"),
        ("SELEC 1", "syntax error"),
        ("FROM nothing", "nothing"),
    ],
)
def test_refused(home: Path, table: Table, sql: str, said: str) -> None:
    assert said in error(home, sql.format(home=home) or ";")
    assert not (home / "out.csv").exists()


def test_columns_that_were_renamed_added_and_widened(home: Path, catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", StringType()), NestedField(2, "n", IntegerType()))
    catalog.create_namespace("orders")
    table = catalog.create_table("orders.payments", schema)
    table.append(pa.table({"id": ["a"], "n": pa.array([1], pa.int32())}))
    before = table.current_snapshot()
    assert before is not None
    with table.update_schema() as update:
        update.rename_column("n", "count")
        update.update_column("n", LongType())
        update.add_column("at", TimestamptzType())
    table.append(
        pa.table({"id": ["b"], "count": pa.array([2**40]), "at": pa.array([BEGIN], pa.timestamp("us", "UTC"))})
    )
    assert facts(home, 'SELECT id, "count", "at" FROM rows ORDER BY id')["rows"] == [
        {"id": "a", "count": 1, "at": None},
        {"id": "b", "count": 2**40, "at": "2026-01-31T22:30:00Z"},
    ]
    assert facts(home, "SELECT id FROM rows WHERE rows.at IS NULL")["rows"] == [{"id": "a"}]
    earlier = ("--snapshot", str(before.snapshot_id))
    assert facts(home, *earlier)["rows"] == [{"id": "a", "n": 1}]
    assert facts(home, "SELECT n FROM rows WHERE n = 1", *earlier)["rows"] == [{"n": 1}]
    assert facts(home, *earlier, "--where", "id = 'a'")["rows"] == [{"id": "a", "n": 1}]
    assert facts(home, *earlier, "--where", "count = 1")["rows"] == [{"id": "a", "n": 1}]


def test_a_table_called_dead_letters_is_not_taken_for_the_dead_letters(home: Path, table: Table) -> None:
    file = home / "streams" / "payments.yaml"
    route = "route: {by: id, tables: [{match: x, table: orders.dead_letters}], unmatched: {table: orders.payments}}\n"
    file.write_text(file.read_text() + route)
    spec = Deployment.at(home).stream("payments")
    catalog = connect_catalog(Deployment.at(home).settings())
    catalog.create_table("orders.dead_letters", spec.table_schema)
    assert facts(home, "SELECT count(*) AS n FROM orders.dead_letters")["rows"] == [{"n": 0}]
    assert "dead_letters does not exist" in error(home, "SELECT count(*) AS n FROM dead_letters")


@pytest.mark.parametrize("name", ["main", "temp", "system", "memory"])
def test_a_catalog_with_a_name_that_duckdb_reserves(home: Path, table: Table, name: str) -> None:
    file = home / "frazil.yaml"
    properties = dict(Deployment.at(home).settings().catalog.properties)
    file.write_text(json.dumps({"catalog": {"name": name, "properties": properties}}))
    create_table(connect_catalog(Deployment.at(home).settings()), Deployment.at(home).stream("payments"))
    assert facts(home, "SELECT count(*) AS n FROM orders.payments")["rows"] == [{"n": 0}]


def test_what_does_not_fit_in_memory_is_not_written_to_the_current_folder(
    home: Path, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sql = "SELECT name, value FROM duckdb_settings() WHERE name IN ('temp_directory', 'memory_limit') ORDER BY name"
    limit, folder = (row["value"] for row in facts(home, sql)["rows"])
    assert limit == "1.8 GiB"
    assert Path(folder).parent == Path(tempfile.gettempdir()) and not Path(folder).exists()


def test_instants_beyond_the_years_of_python(home: Path, table: Table) -> None:
    sql = "SELECT '20000-01-01'::DATE AS day, TIMESTAMP '12000-01-01 00:00:00' AS at, 'infinity'::TIMESTAMPTZ AS never"
    assert "20000-01-01" in command(home, sql).stdout
    (row,) = facts(home, sql)["rows"]
    assert row["day"] == "20000-01-01" and row["at"].startswith("12000-01-01")


def test_a_long_text_is_cut_at_once() -> None:
    begin = time.monotonic()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_as_table(pa.table({"value": ["ab" * 500_000, "日" * 100]}).to_reader(), None)
    assert time.monotonic() - begin < 20
    first, second = [line for line in out.getvalue().splitlines() if line.startswith("  value")]
    assert first == f"  value  {('ab' * 500)[:70]}…" and second == f"  value  {'日' * 35}…"


def test_wrong_filters_and_formats(home: Path, table: Table) -> None:
    assert "there is no column nothing" in error(home, "--where", "nothing = 1")
    assert "it cannot be read from character 1 on: id =" in error(home, "--where", "id =")
    assert "two formats" in error(home, "--csv", "--json")


def test_before_the_first_run(home: Path, catalog: Catalog) -> None:
    assert "table orders.payments of stream payments does not exist yet." in error(home)
    assert "frazil run payments" in error(home)
    catalog.create_namespace("orders")
    catalog.create_table("orders.payments", Deployment.at(home).stream("payments").table_schema)
    assert facts(home)["rows"] == []
    assert facts(home, "SELECT count(*) AS n FROM rows")["rows"] == [{"n": 0}]


def test_without_duckdb_the_error_names_the_extra(home: Path, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'frazil[query]'" in error(home)


def test_a_lost_data_file_is_named(home: Path, table: Table) -> None:
    for file in table.inspect.files()["file_path"].to_pylist():
        Path(file.removeprefix("file://")).unlink()
    assert "a data file cannot be read: FileNotFoundError" in error(home, "SELECT sum(amount) FROM rows")


def test_only_columns_and_files_that_are_needed_are_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, list[str]]] = []
    real = type(table.io).new_input

    def noted(self: Any, location: str) -> Any:
        if location.endswith(".parquet"):
            read.append((location, []))
        return real(self, location)

    monkeypatch.setattr(type(table.io), "new_input", noted)
    dataset = IcebergDataset(table, table.scan(limit=3))
    scanner = dataset.scanner(["amount"], pc.field("id") != "p-0")
    assert read == [] and scanner.projected_schema.names == ["amount"]
    assert scanner.to_table().num_rows in (2, 3) and len(read) == 1
    assert IcebergDataset(table, table.scan()).scanner([], None).to_table().num_rows == 30
