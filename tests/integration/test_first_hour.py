"""The first hour: a new deployment for a file of records, its rows in a table, and what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from resources.deployment import Deployment
from tests.integration.marked import Marked

pytestmark = pytest.mark.integration
ROWS = 500


def done(home: Path, *arguments: str) -> str:
    """The output of a command that succeeds."""
    with Marked(home, arguments) as command:
        status, output, errors = command.finish(600)
    assert status == 0, output + errors
    return output


def test_from_a_file_of_records_to_rows(tmp_path: Path) -> None:
    file, home = tmp_path / "orders.jsonl", tmp_path / "lake"
    lines = [json.dumps({"id": f"o-{n}", "amount": n / 4, "at": "2026-11-30T10:00:00Z"}) for n in range(ROWS)]
    file.write_text("\n".join([*lines, '{"id": "bad", "amount": "much"}']) + "\n")
    done(tmp_path, "init", str(home), "--records", str(file), "--times")
    done(home, "up")
    try:
        assert f"{ROWS + 1:,} records in topic orders" in done(home, "generate", "orders", "--from", str(file))
        done(home, "run", "orders")
        deployment = Deployment.at(home)
        with connect_catalog(deployment.settings()) as catalog:
            rows = catalog.load_table("landing.orders").scan().to_arrow().to_pylist()
        assert sorted(row["amount"] for row in rows if row["id"] != "bad") == [n / 4 for n in range(ROWS)]
        assert "wrong_type" in done(home, "letters", "orders")
    finally:
        done(home, "down")
