"""Steps one after another: which are not tried after a failure, and what a failure says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from jobs.commit.stamps import property_key
from jobs.maintain import table_maintenance
from jobs.maintain.maintenance_history import read_history, table_store
from jobs.maintain.plan import Step
from jobs.maintain.results import StepProgress, StepResult
from jobs.maintain.table_context import TableContext
from jobs.maintain.table_maintenance import PROCEDURES, TableMaintenance
from tests.helpers.lake import STREAM, Lake, later
from tests.unit.maintain.contexts import EXPIRE, spark, table_context, with_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_catalog_that_goes_away_in_the_middle(lake: Lake) -> None:
    database = lake.settings.home / ".frazil" / "catalog.db"
    content = database.read_bytes()
    files = lake.files()

    def spoil(progress: StepProgress) -> None:
        if progress.result is None:
            database.write_bytes(b"no database" * 100)

    policy = {**EXPIRE, "compact": {"enabled": False}, "metadata": {"previous_versions": 5}}
    result = lake.maintain(spark, policy, now=later, on_progress=spoil)
    database.write_bytes(content)
    assert [each.step.action for each in result.done] == ["expire", "metadata"]
    assert "catalog frazil failed" in result.errors[0]
    assert result.errors[1].startswith("Not tried: table lake.payments: catalog frazil failed")
    assert result.after is None
    assert lake.files() == files


def test_orphans_are_not_looked_for_after_an_expiry_that_failed(lake: Lake) -> None:
    lake.forget()
    lake.land(days=1, rows=1)
    lake.land(days=1, rows=1)
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    told: list[StepResult | None] = []
    result = lake.maintain(
        spark, EXPIRE, only={"expire", "orphans"}, now=later, on_progress=lambda progress: told.append(progress.result)
    )
    assert "is not the newest stamp" in result.errors[0]
    assert "since the expiry before it failed" in result.errors[1]
    noted = read_history(table_store(lake.settings, result.plan.uuid))
    assert [(each.action, each.failures) for each in noted.entries.values()] == [("expire", 1)]
    assert told == [None, result.done[0], None, result.done[1]]


def test_secrets_in_a_failure_do_not_reach_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PASS", "hunter2")
    lake.settings = with_secret(lake)

    def refused() -> SparkSession:
        raise RuntimeError("no session for hunter2")

    result = lake.maintain(refused, {"compact": {"min_files": 2}})
    assert result.errors == ("table lake.payments: compact failed: RuntimeError: no session for ${env:PASS}",)
    assert "Traceback" in caplog.text and "no session for ${env:PASS}" in caplog.text
    assert "hunter2" not in caplog.text
    assert [record.exc_info for record in caplog.records if record.name == table_maintenance.__name__] == [None]


def test_a_jvm_that_ends_in_a_step_is_told_and_the_next_step_gets_another(lake: Lake) -> None:
    gone: list[bool] = []
    made: list[object] = []

    def dies(context: TableContext, batch: Sequence[Step]) -> list[StepResult]:
        context.procedures()
        gone.append(True)
        raise ConnectionRefusedError(111, "Connection refused")

    def rewritten(context: TableContext, batch: Sequence[Step]) -> list[StepResult]:
        context.procedures()
        return [StepResult(step) for step in batch]

    def opened(*_: object) -> Any:
        gone.clear()
        made.append(len(made))
        return made[-1]

    context = table_context(
        lake,
        {"compact": {"min_files": 2}, "manifests": {"max": 1}},
        spark=lambda: None,
        open_procedures=opened,
        jvm_is_gone=lambda: bool(gone),
    )
    maintenance = TableMaintenance(
        context,
        only={"compact", "manifests"},
        procedures={**PROCEDURES, "compact": dies, "manifests": rewritten},
    )
    maintenance.carry_out()
    result = maintenance.result()
    assert made == [0, 1]
    (error,) = result.errors
    assert "compact failed, since Spark's JVM ended meanwhile" in error and "Connection refused" not in error
    assert "spark.driver_memory" in error
    noted = read_history(table_store(lake.settings, result.plan.uuid))
    assert {each.action: each.failures for each in noted.entries.values()} == {"compact": 1, "manifests": 0}
