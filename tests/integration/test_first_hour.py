"""The first hour: new deployments for a file of records and for a topic, their rows in tables, and what failed."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from resources.deployment import Deployment
from tests.integration.marked import Marked

pytestmark = pytest.mark.integration
ROWS = 500
# From an empty folder to rows; it takes a minute on two cores that have nothing else to do.
FIRST_ROWS_SECONDS = 600


def done(home: Path, *arguments: str) -> str:
    """The output of a command that succeeds."""
    with Marked(home, arguments) as command:
        status, output, errors = command.finish(600)
    assert status == 0, output + errors
    return output


def test_from_a_file_of_records_to_rows_and_from_its_topic(tmp_path: Path) -> None:
    began = time.monotonic()
    file, home = tmp_path / "orders.jsonl", tmp_path / "lake"
    lines = [json.dumps({"id": f"o-{n}", "amount": n / 4, "at": "2026-11-30T10:00:00Z"}) for n in range(ROWS)]
    file.write_text("\n".join([*lines, '{"id": "bad", "amount": "much"}']) + "\n")
    done(tmp_path, "init", str(home), "--records", str(file), "--times")
    done(home, "up")
    try:
        assert f"{ROWS + 1:,} records in topic orders" in done(home, "generate", "orders", "--from", str(file))
        done(home, "run", "orders")
        assert amounts(home) == [n / 4 for n in range(ROWS)]
        assert time.monotonic() - began < FIRST_ROWS_SECONDS
        assert "wrong_type" in done(home, "letters", "orders")
        # Another deployment, made from the topic alone.
        brokers = Deployment.at(home).settings().kafka.require_bootstrap()
        other = tmp_path / "other"
        said = done(tmp_path, "init", str(other), "--topic", "orders", "--brokers", brokers, "--times")
        assert "frazil run orders" in said and "frazil up" not in said
        (spec,), errors = Deployment.at(other).streams()
        assert (spec.decode.format, errors) == ("json", [])
        assert re.search(r"topic orders \(\d+ partitions\) exists", done(other, "validate"))
        done(other, "run", "orders")
        assert amounts(other) == [n / 4 for n in range(ROWS)]
        with Marked(tmp_path, ["init", str(tmp_path / "none"), "--topic", "no-such", "--brokers", brokers]) as command:
            status, _, errors = command.finish(300)
        assert (status, "no-such" in errors, (tmp_path / "none").exists()) == (1, True, False)
    finally:
        done(home, "down")


def amounts(home: Path) -> list[float]:
    """The amounts in the table of a deployment, the bad record's excepted, in order."""
    with connect_catalog(Deployment.at(home).settings()) as catalog:
        rows = catalog.load_table("landing.orders").scan().to_arrow().to_pylist()
    return sorted(row["amount"] for row in rows if row["id"] != "bad")
