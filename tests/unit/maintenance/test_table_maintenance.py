"""One table's maintenance without Spark: planned, locked, carried out and measured again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.maintenance.measure.health_facts import TableFacts
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.measure.maintenance_history import read_history, table_store
from jobs.maintenance.plan.plan import Plan, Step
from jobs.maintenance.plan.results import StepProgress, StepResult
from jobs.maintenance.plan.table_context import TableContext
from jobs.maintenance.run import table_maintenance
from jobs.maintenance.run.table_lock import TableBusyError, table_lock
from jobs.maintenance.run.table_maintenance import PROCEDURES, TableMaintenance
from jobs.tables.commit.stamp.stamps import property_key
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from tests.helpers.lake import NAME, STREAM, Lake, later
from tests.unit.maintenance.contexts import (
    EXPIRE,
    spark,
    table_context,
    with_secret,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_healthy_table_and_a_dry_run_start_nothing_and_lock_nothing(lake: Lake) -> None:
    assert lake.maintain(spark, {}).done == ()
    planned = lake.maintain(spark, {"compact": {"min_files": 2}}, dry_run=True)
    assert [step.action for step in planned.plan.steps] == ["compact"]
    assert table_store(lake.settings, planned.plan.uuid).keys("*") == []


def test_one_at_a_time(lake: Lake) -> None:
    policy = {"compact": {"min_files": 2}}
    with table_lock(lake.settings, NAME, str(lake.table().metadata.table_uuid)) as lock:
        lock.verify()
        result = lake.maintain(spark, policy)
        assert result.skipped is not None and "is being maintained by process" in result.skipped
        with (
            pytest.raises(TableBusyError, match="is being maintained"),
            table_lock(lake.settings, NAME, result.plan.uuid),
        ):
            pass
    # Given back: Spark would be started now, which is the step's own failure and no other's.
    result = lake.maintain(spark, policy)
    assert [each.error is not None and "Started" in each.error for each in result.done] == [True]
    noted = read_history(table_store(lake.settings, result.plan.uuid))
    assert [(each.action, each.failures) for each in noted.entries.values()] == [("compact", 1)]


def test_a_plan_knows_who_holds_snapshots(lake: Lake) -> None:
    def planned(**options: Any) -> Plan:
        return lake.maintain(spark, EXPIRE, only={"expire"}, now=later, dry_run=True, **options).plan

    # The ledger is filled first; of a stream that no file names nobody fills it.
    assert [(step.files_before, step.files_after) for step in planned().steps] == [(4, 1)]
    # All but the claim before the first batch.
    (unnamed,) = planned(specs=[]).steps
    assert unnamed.files_after == 3 and "2 of those that are due stay, for ledger" in unnamed.reason
    lake.pend()
    assert "for pending record" in planned().skips[0].reason
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    (step,) = planned().steps
    assert step.files_before == step.files_after and "None will go:" in step.reason


def test_what_was_done_is_told_though_it_cannot_be_measured_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PASS", "hunter2")

    def measured(*args: Any, **options: Any) -> TableFacts:
        if "deep" in options:
            raise OSError("503 SlowDown for hunter2")
        return measure_health(*args, **options)

    lake.settings = with_secret(lake)
    context = table_context(lake, {"metadata": {"previous_versions": 7}})
    maintenance = TableMaintenance(context, only={"metadata"}, measure=measured)
    maintenance.carry_out()
    result = maintenance.result()
    assert [each.done for each in result.done] == [True]
    assert result.after is None
    assert "could not be measured again: OSError: 503 SlowDown for ${env:PASS}" in caplog.text


def test_a_table_whose_last_steps_find_it_locked_is_measured_again(lake: Lake) -> None:
    def landed(at: TableContext, batch: Sequence[Step]) -> list[StepResult]:
        lake.land(days=1, rows=1)
        return [StepResult(step) for step in batch]

    told: list[StepProgress] = []
    policy = {"compact": {"min_files": 2}, "metadata": {"previous_versions": 7}}
    maintenance = TableMaintenance(
        table_context(lake, policy),
        only={"compact", "metadata"},
        on_progress=told.append,
        procedures={**PROCEDURES, "compact": landed},
    )
    maintenance.carry_out(("compact",))
    with table_lock(lake.settings, NAME, str(lake.table().metadata.table_uuid)):
        maintenance.carry_out(("metadata",))
    result = maintenance.result()
    assert [(each.step.action, each.done) for each in result.done] == [("compact", True), ("metadata", False)]
    assert [error.split(" by ")[0] for error in result.errors] == ["Not tried: table lake.payments is being maintained"]
    assert told[-1].result is result.done[-1]
    assert result.after is not None
    assert result.after.snapshots == result.before.snapshots + 1


def test_properties_of_the_metadata_are_set(lake: Lake) -> None:
    result = lake.maintain(spark, {"metadata": {"previous_versions": 7}}, only={"metadata"})
    assert result.errors == ()
    assert lake.table().properties["write.metadata.previous-versions-max"] == "7"
    again = lake.maintain(spark, {"metadata": {"previous_versions": 7}}, only={"metadata"}, dry_run=True)
    assert again.plan.steps == ()


def test_another_run_that_was_quicker_is_seen_under_the_lock(lake: Lake) -> None:
    policy = {"metadata": {"previous_versions": 7}}
    inner: list[int] = []

    def quicker() -> datetime:
        # The clock is asked once when it plans, before the lock is taken.
        if not inner:
            inner.append(1)
            assert len(lake.maintain(spark, policy, only={"metadata"}).done) == 1
        return datetime.now(UTC)

    # It planned on what it had loaded before; under the lock it plans anew.
    assert lake.maintain(spark, policy, only={"metadata"}, now=quicker).done == ()


def test_the_lock_of_a_mirror_is_free_between_partitions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_maintenance, "_TURN_BYTES", 1)
    with lake.table().transaction() as change:
        change.set_properties({MIRROR_PROPERTY: "{}"})
    for _ in range(3):
        lake.land(days=2, rows=4)
    uuid = str(lake.table().metadata.table_uuid)
    batches: list[int] = []
    free: list[bool] = []

    def compacted(at: TableContext, batch: Sequence[Step]) -> list[StepResult]:
        batches.append(len(batch))
        with pytest.raises(TableBusyError), table_lock(lake.settings, NAME, uuid):
            pass
        return [StepResult(step) for step in batch]

    def between(seconds: float) -> None:
        with table_lock(lake.settings, NAME, uuid):
            free.append(True)

    maintenance = TableMaintenance(
        table_context(lake, {"compact": {"min_files": 2}}),
        only={"compact"},
        procedures={**PROCEDURES, "compact": compacted},
    )
    monkeypatch.setattr(table_maintenance, "time", SimpleNamespace(monotonic=time.monotonic, sleep=between))
    maintenance.carry_out()
    result = maintenance.result()
    assert result.errors == () and len(result.done) == len(batches) > 2
    assert batches == [1] * len(batches)
    assert len(free) == len(batches) - 1


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
