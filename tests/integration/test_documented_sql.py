"""Spark's SQL and PyIceberg's Python of the docs: each statement runs, in `frazil shell` as a reader types it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.base.spark_names import spark_name
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from jobs.tables.ledger.ledger_table import LEDGER_SCHEMA
from tests.docs.reader import ROOT
from tests.docs.statements import Statement, python_blocks, statements

pytestmark = pytest.mark.integration

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
REST = 'type="rest", uri="https://catalog.example.com/api/catalog", warehouse="lake"'
METADATA = "s3://lake/warehouse/orders/payments/metadata/00042-….metadata.json"
TIME = "2026-11-30 10:00:00"
PERSON, OTHER = 4711, 4712
# A catalog of another kind, which the page on catalogs leaves.
FORMER = "spark.sql.catalog.nessie"
ODD = "shop.customers-eu"
# Statements of the forms that errors and `frazil plan` name.
OF_MESSAGES = (
    "ALTER TABLE shop.customers CREATE BRANCH side",
    "ALTER TABLE shop.customers REPLACE BRANCH side AS OF VERSION {snapshot}",
    "CALL system.fast_forward('shop.customers', 'main', 'side')",
    "CALL system.set_current_snapshot('shop.customers', {snapshot})",
    "CALL system.rollback_to_snapshot('shop.customers', {snapshot})",
    "ALTER TABLE shop.customers ADD PARTITION FIELD bucket(16, customer_id)",
    "ALTER TABLE shop.customers DROP PARTITION FIELD bucket(16, customer_id)",
    "ALTER TABLE shop.customers WRITE ORDERED BY customer_id desc, name",
    "ALTER TABLE shop.customers SET TBLPROPERTIES ('format-version' = '2')",
    "CALL system.rewrite_data_files(table => 'shop.customers', options => map('rewrite-all', 'true'))",
    "CALL system.rewrite_data_files(table => 'shop.customers', options => map('delete-file-threshold', '1'))",
    "ALTER TABLE shop.customers UNSET TBLPROPERTIES ('read.split.target-size')",
    f"ALTER TABLE {spark_name(ODD)} CREATE BRANCH {spark_name('side-1')}",
    f"CALL system.rewrite_data_files(table => '{spark_name(ODD)}', options => map('rewrite-all', 'true'))",
)
CODE = """
import json
for number, text in enumerate(json.loads({texts!r})):
    try:
        found = [list(map(str, row)) for row in sql(text).collect()]
    except Exception as problem:
        found = f"{{type(problem).__name__}}: {{problem}}"
    print(json.dumps(found))
"""


class Place:
    """A deployment with the tables of which the pages speak, in a catalog `lake`."""

    def __init__(self, home: Path) -> None:
        self.home: Path = home
        self.properties: dict[str, str] = {
            "type": "sql",
            "uri": f"sqlite:///{home}/catalog.db",
            "warehouse": f"file://{home}/warehouse",
        }
        former = {FORMER: "org.apache.iceberg.spark.SparkCatalog", f"{FORMER}.type": "hadoop"}
        former[f"{FORMER}.warehouse"] = f"file://{home}/former"
        settings = {"catalog": {"name": "lake", "properties": self.properties}, "spark": {"conf": former}}
        (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.catalog: Catalog = connect_catalog(load_settings(None, home=home))
        for namespace in ("orders", "shop", "frazil"):
            self.catalog.create_namespace(namespace)
        payments = self.table(
            "orders.payments",
            _columns("id string not null, amount decimal(12,2)"),
            {"id": "p-1", "amount": Decimal("120.50")},
            {"id": "p-2", "amount": Decimal("7.25")},
        )
        head = payments.metadata.current_snapshot_id
        assert head is not None
        payments.manage_snapshots().create_branch(head, "ingest").create_branch(head, "trial").commit()
        self.table("orders.payments_trial_dead", DEAD_LETTER_SCHEMA)
        for name in ("shop.customers", "shop.customers_changes", ODD):
            rows = ({"customer_id": number, "name": "n"} for number in (PERSON, OTHER))
            self.table(name, _columns("customer_id long not null, name string"), *rows)
        self.table("shop.customers_changes_dead", DEAD_LETTER_SCHEMA, _letter(PERSON), _letter(OTHER))
        self.table("frazil.ledger", LEDGER_SCHEMA)

    def table(self, name: str, schema: Schema, *rows: dict[str, Any]) -> Table:
        """A new table with rows."""
        table = self.catalog.create_table(name, schema)
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))
        return table

    def count(self, name: str) -> int:
        """Rows of a table."""
        return self.catalog.load_table(name).scan().to_arrow().num_rows

    def run(self, *texts: str) -> list[list[list[str]] | str]:
        """Rows of each statement, in one `frazil shell`; or what it raised."""
        command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(self.home), "shell", "-c"]
        code = CODE.format(texts=json.dumps(texts))
        ran = subprocess.run([*command, code], capture_output=True, text=True, check=False, timeout=600)
        assert ran.returncode == 0, ran.stderr
        assert "QueryContextLogger" not in ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]


def _columns(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def _letter(person: int) -> dict[str, Any]:
    place = {"stream": "customers", "topic": "customers", "partition": 0, "offset": person}
    reason = {"stage": "decode_value", "error_class": "wrong_type", "first_seen": datetime.now(UTC)}
    return {**place, **reason, "key": str(person).encode()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_statement_runs(place: Place) -> None:
    documented = [found for page in PAGES for found in statements(page) if found.engine == "spark"]
    # It needs that its table is in no catalog, so it runs last.
    *others, registration = sorted(documented, key=lambda each: "register_table" in each.text)
    assert "register_table" in registration.text
    standing = {
        METADATA: place.catalog.load_table("orders.payments").metadata_location,
        TIME: f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}",
    }
    customers = place.catalog.load_table("shop.customers").metadata.current_snapshot_id
    of_messages = [text.format(snapshot=customers) for text in OF_MESSAGES]
    answers = place.run(
        "SELECT nothing",
        *of_messages,
        "CREATE TABLE nessie.lake.payments (id bigint) USING iceberg",
        *(_with(each.text, standing) for each in others),
        "DROP TABLE lake.orders.payments",
        _with(registration.text, standing),
    )
    assert "UNRESOLVED_COLUMN" in str(answers.pop(0))
    names = [*of_messages, "the table to look at", *map(_at, others), "the table to register", _at(registration)]
    failed = [f"{name}: {answer}" for name, answer in zip(names, answers, strict=True) if isinstance(answer, str)]
    assert not failed, "\n".join(failed)
    left = [place.count(f"shop.{name}") for name in ("customers", "customers_changes", "customers_changes_dead")]
    assert left == [1, 1, 1]
    assert not place.catalog.table_exists("orders.payments_trial_dead")
    assert place.count("orders.payments") == 2


def test_the_code_for_pyiceberg_runs(place: Place) -> None:
    codes = [code for page in PAGES for code in python_blocks(page) if "pyiceberg" in code]
    assert codes
    given = ", ".join(f"{key}={value!r}" for key, value in place.properties.items())
    for code in codes:
        assert REST in code
        names: dict[str, Any] = {}
        *before, last = code.replace(REST, given).strip().splitlines()
        exec("\n".join([*before, f"rows = {last}"]), names)
        assert names["rows"].to_pylist() == [{"id": "p-1", "amount": Decimal("120.50")}]


def _with(text: str, standing: dict[str, str]) -> str:
    for example, actual in standing.items():
        text = text.replace(example, actual)
    return text


def _at(statement: Statement) -> str:
    return f"{statement.page.relative_to(ROOT)}:{statement.line}: {statement.text}"
