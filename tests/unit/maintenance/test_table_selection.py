"""Names in `maintenance.tables` that nobody has, and namespaces that cannot be listed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError

from jobs.clients.state_store.table_health import read_health
from jobs.config.settings.loading import load_stream
from jobs.maintenance.measure.maintenance_history import table_store
from jobs.maintenance.plan.table_selection import ExistingTables, all_maintained, chosen_tables
from jobs.maintenance.run.maintenance_run import MaintenanceOutcome, maintain_tables
from orchestration.cli.main import main
from orchestration.cli.stream_files.validate.catalog_checks import check_names
from tests.unit.orchestration.maintain_deployment import DEAD, OTHER, SINK, Tables


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    made = Tables(tmp_path)
    yield made
    made.close()


class Refusing:
    """The catalog, of which some namespaces may not be listed.

    Args:
        namespaces: Which.
        problem: What it says, or what it waits for.
    """

    def __init__(self, catalog: Catalog, namespaces: set[str], problem: Exception | threading.Event) -> None:
        self._catalog: Catalog = catalog
        self._namespaces: set[str] = namespaces
        self._problem: Exception | threading.Event = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        if ".".join(namespace) not in self._namespaces:
            return self._catalog.list_tables(namespace)
        if isinstance(self._problem, Exception):
            raise self._problem
        self._problem.wait(30)
        return []


def outcomes(tables: Tables, catalog: Any = None) -> dict[str, MaintenanceOutcome]:
    settings, specs = tables.settings, [load_stream(tables.spec_file)]
    asked = cast("Catalog", catalog or tables.catalog)
    chosen = chosen_tables(settings, specs, asked, [])

    def no_spark() -> Any:
        raise AssertionError("Spark is not needed")

    found = maintain_tables(
        asked, settings, specs, chosen, spark=no_spark, dry_run=True, only=None, on_progress=lambda _: None
    )
    return {outcome.table.name: outcome for outcome in found}


def problems(found: dict[str, MaintenanceOutcome]) -> dict[str, str]:
    return {name: str(outcome.problem) for name, outcome in found.items() if outcome.problem}


def validated(tables: Tables, *streams: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(tables.home), "validate", *streams])


def test_names_that_nobody_has_are_told_and_hide_no_table(tables: Tables) -> None:
    tables.make_other()
    tables.in_settings("{name: lake.evnts}, {name: 'lak.*', enabled: false}, {name: 'lake.*'}")
    found = outcomes(tables)
    assert list(found) == [SINK, DEAD, OTHER, "lake.evnts", "lak.*"]
    told = problems(found)
    assert told["lake.evnts"].startswith("table lake.evnts is not in the catalog frazil.")
    assert told["lak.*"] == (
        "maintenance.tables names lak.*, and there is no such namespace in catalog frazil.\n"
        "  Next: did you mean lake.*? Correct it in frazil.yaml, or take it out"
    )
    assert set(told) == {"lake.evnts", "lak.*"}
    result = CliRunner().invoke(main, ["--home", str(tables.home), "maintain", "--plan"])
    assert result.exit_code == 1
    assert "table lake.evnts is not in the catalog" in result.stderr and f"{OTHER}: score" in result.stdout


def test_drivers_are_told_how_healthy_each_table_is(tables: Tables) -> None:
    found = outcomes(tables)
    for name in (SINK, DEAD):
        health = found[name].health
        store = table_store(tables.settings, str(tables.catalog.load_table(name).metadata.table_uuid))
        told = read_health(store)
        assert health is not None and told is not None
        assert told.score == health.total
        assert abs(told.at - time.time()) < 60


def test_what_a_stream_has_yet_to_make_is_no_wrong_name(tables: Tables) -> None:
    text = tables.spec_file.read_text().replace("orders.payments", "sales.refunds")
    (tables.home / "streams" / "refunds.yaml").write_text(text.replace("stream: payments", "stream: refunds"))
    tables.in_settings("{name: sales.refunds}, {name: 'sales.*'}, {name: 'frazil.*'}")
    specs = [load_stream(path) for path in sorted((tables.home / "streams").glob("*.yaml"))]
    assert [table.name for table in chosen_tables(tables.settings, specs, tables.catalog, [])] == [SINK, DEAD]
    assert list(check_names(specs, tables.settings, tables.catalog)) == []


def test_a_namespace_that_may_not_be_listed_hides_no_table(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASS", "hunter2")
    tables.make_other()
    tables.in_settings(f"{{name: 'orders.*'}}, {{name: 'lake.*'}}, {{name: {OTHER}}}")
    settings = tables.home / "frazil.yaml"
    settings.write_text(f"{settings.read_text()}spark: {{conf: {{spark.some.password: '${{env:PASS}}'}}}}\n")
    refusing = Refusing(tables.catalog, {"orders", "lake"}, ForbiddenError("not for hunter2\nat somewhere"))
    found = outcomes(tables, refusing)
    assert list(found) == [SINK, DEAD, OTHER, "lake.*", "orders.*"]
    told = problems(found)
    assert set(told) == {"lake.*", "orders.*"}
    assert told["lake.*"] == (
        "namespace lake of catalog frazil could not be listed: ForbiddenError: not for ${env:PASS}\n"
        "  Next: see that frazil may list it, or name its tables one by one in maintenance.tables"
    )
    findings = list(check_names([load_stream(tables.spec_file)], tables.settings, cast("Catalog", refusing)))
    assert [finding.verdict for finding in findings] == ["unchecked", "unchecked"]


def test_a_listing_that_hangs_is_not_waited_for(tables: Tables) -> None:
    tables.make_other()
    tables.in_settings("{name: 'lake.*'}")
    answer = threading.Event()
    refusing = Refusing(tables.catalog, {"lake"}, answer)
    existing = ExistingTables(cast("Catalog", refusing), tables.settings, seconds=0.5)
    found = {table.name: table for table in all_maintained(tables.settings, [load_stream(tables.spec_file)], existing)}
    answer.set()
    assert list(found) == [SINK, DEAD, "lake.*"]
    assert "catalog frazil did not answer within" in str(found["lake.*"].problem)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lake.evnts", OTHER),
        ("lak.events", OTHER),
        ("orders.paymnts", SINK),
        ("'lak.*'", "lake.*"),
        ("zzz.qqq", None),
    ],
)
def test_validate_tells_the_nearest_name(tables: Tables, name: str, near: str | None) -> None:
    tables.make_other()
    tables.in_settings(f"{{name: {name}}}")
    (finding,) = check_names([load_stream(tables.spec_file)], tables.settings, tables.catalog)
    assert (finding.verdict, finding.subject) == ("wrong", "settings")
    assert f"maintenance.tables names {name.strip(chr(39))}, and there is no such" in finding.sentence
    told = f"did you mean {near}? " if near else "correct the name in frazil.yaml"
    assert (finding.fix or "").startswith(told)


def test_validate(tables: Tables) -> None:
    tables.make_other()
    tables.in_settings("{name: lake.events}, {name: lake.evnts}")
    result = validated(tables)
    assert result.exit_code == 1
    assert "settings: maintenance.tables names lake.evnts, and there is no such table" in result.output
    assert "Next: did you mean lake.events?" in result.output
    # Of a stream alone nobody knows whose the other names are.
    assert validated(tables, "payments").exit_code == 0
    tables.close()
    (tables.home / ".frazil" / "catalog.db").unlink()
    result = validated(tables)
    assert result.exit_code == 0
    assert "maintenance.tables: whether there are lake.events, lake.evnts was not checked" in result.output
