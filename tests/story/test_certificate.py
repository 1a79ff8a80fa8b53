"""A certificate of a deployment in which somebody doubles a row: it fails, names the row, and leaves all as it is."""

from __future__ import annotations

import threading

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from tests.helpers.certifying import Certifying

pytestmark = pytest.mark.timeout(2100)


def test_a_doubled_row_fails_the_certificate(certifying: Certifying) -> None:
    enough = threading.Event()
    doubled: list[str] = []

    def double() -> None:
        """Append a row that is there already, as soon as there is one."""
        while not enough.wait(0.1):
            with connect_catalog(load_settings(None, home=certifying.home)) as catalog:
                for (namespace,) in catalog.list_namespaces():
                    try:
                        table = catalog.load_table(f"{namespace}.payments")
                        rows = table.scan(limit=1).to_arrow()
                        if rows.num_rows:
                            table.append(rows)
                            doubled.append(namespace)
                            return
                    except (NoSuchTableError, CommitFailedException):
                        continue

    doubling = threading.Thread(target=double)
    doubling.start()
    try:
        # A driver that dies there has started no Spark: the one that ends the certificate is enough.
        status, facts = certifying.run("--steps", "before_lease", "--runs", "1", "--seed", "12", "--records", "200")
    finally:
        enough.set()
        doubling.join(30)
    assert doubled, "the test itself did nothing"
    assert status == 1
    assert facts["passed"] is False
    assert any("1 records more than once in the table: partition" in problem for problem in facts["problems"])
    said = certifying.said()
    assert f"Left as it is: topic {doubled[0]}, namespace {doubled[0]}" in said
    assert "frazil certify --seed 12 --steps before_lease" in said
    # What failed can be looked at; only the processes are gone.
    assert certifying.processes() == []
    assert doubled[0] in certifying.topics()
    assert doubled[0] in certifying.namespaces()
    assert len(certifying.folders()) == 1
