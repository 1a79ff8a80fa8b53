"""Maintenance as a Dagster run, on real tables: what is told of each, what fails, and that health costs no JVM."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.maintenance.run.table_lock import table_lock
from orchestration.definitions import build_definitions
from orchestration.jobs.maintain.jobs import maintain_job
from orchestration.jobs.maintain.ops import POOL
from orchestration.sensors.reconcile import acting_runs
from resources.deployment import Deployment
from tests.unit.maintenance.metadata_tables import MB
from tests.unit.orchestration.dead_letter_deployment import failure_of, metadata_of
from tests.unit.orchestration.deployments import deployment_in
from tests.unit.orchestration.maintain_deployment import DEAD, OTHER, SINK, Tables

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def key(table: str) -> dg.AssetKey:
    return dg.AssetKey(["frazil", *table.split(".")])


def observed(result: Any) -> dict[dg.AssetKey, dict[str, Any]]:
    found = [each.asset_observation_data.asset_observation for each in result.get_asset_observation_events()]
    return {each.asset_key: {name: value.value for name, value in each.metadata.items()} for each in found}


def checked(result: Any) -> dict[dg.AssetKey, dg.AssetCheckEvaluation]:
    return {each.asset_key: each for each in result.get_asset_check_evaluations()}


def test_healthy_tables_start_no_spark_and_are_told_of(tables: Tables, instance: dg.DagsterInstance) -> None:
    tables.add(3, size=128 * MB)
    result, spark = tables.run(instance, dry_run=False)
    assert result.success
    assert spark.asked == 0
    told = metadata_of(result, "summary")
    assert (told["tables"], told["tables_failed"], told["rewritten_bytes"]) == (2, 0, 0)
    assert told["result"] == "0 of 2 tables were maintained, 0 failed"
    assert [record.data["table"] for record in told["by_table"]] == [SINK, DEAD]
    seen = observed(result)
    assert set(seen) == {key(SINK), key(DEAD)}
    sink = seen[key(SINK)]
    assert (sink["health"], sink["health_before"], sink["data_files"], sink["data_files_less"]) == (100, 100, 3, 0)
    assert sink["result"].startswith(f"{SINK}: score 100, nothing is due")
    assert all(each.passed and each.check_name == "table_health" for each in checked(result).values())
    assert set(checked(result)) == {key(SINK), key(DEAD)}


def test_a_dry_run_tells_the_plan(tables: Tables, instance: dg.DagsterInstance) -> None:
    tables.add(200)
    before = tables.catalog.load_table(SINK).metadata.current_snapshot_id
    result, spark = tables.run(instance, dry_run=True, reason="looking")
    assert result.success
    assert spark.asked == 0
    told = metadata_of(result, "summary")
    assert told["dry_run"] is True
    assert told["result"] == "1 of 2 tables have something to do; nothing was changed"
    assert told["next"] == "launch it again with dry_run: false"
    (row,) = [record.data for record in told["by_table"] if record.data["table"] == SINK]
    assert "would do compact: 200 → " in row["result"]
    assert tables.catalog.load_table(SINK).metadata.current_snapshot_id == before
    assert observed(result) == {}
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    tags = {"frazil/action": "maintain", "frazil/reason": "looking", "frazil/by": "jo", "dagster/priority": "-10"}
    assert tags.items() <= stored.tags.items()
    assert acting_runs(instance) == {}


def test_a_table_that_fails_hides_no_other_and_fails_the_run(tables: Tables, instance: dg.DagsterInstance) -> None:
    tables.add(200)
    tables.break_manifest()
    tables.add(200, table=DEAD)
    tables.make_other()
    tables.in_settings("{name: 'lake.*'}")
    result, spark = tables.run(instance, dry_run=False, actions=["orphans"])
    failed = failure_of(result)
    assert failed.description.startswith(f"table {SINK}: ")
    assert failed.metadata["tables_failed"].value == 1
    assert failed.metadata["next"].value
    failures = {record.data["table"]: record.data["failed"] for record in failed.metadata["by_table"].records}
    assert failures == {SINK: 1, DEAD: 0, OTHER: 0}
    seen = observed(result)
    assert set(seen) == {key(SINK), key(DEAD), key(OTHER)}
    assert seen[key(SINK)]["problems"] == 1
    assert key(SINK) not in checked(result)
    assert spark.asked == 0


def test_a_wrong_name_in_the_settings_fails_the_run_and_becomes_no_asset(
    tables: Tables, instance: dg.DagsterInstance
) -> None:
    tables.in_settings("{name: lake.evnts}, {name: 'nowhere.*'}")
    result, _ = tables.run(instance, dry_run=False)
    failed = failure_of(result)
    assert failed.description.startswith("table lake.evnts is not in the catalog frazil.")
    failures = {record.data["table"]: record.data["failed"] for record in failed.metadata["by_table"].records}
    assert failures == {SINK: 0, DEAD: 0, "lake.evnts": 1, "nowhere.*": 1}
    assert set(observed(result)) == {key(SINK), key(DEAD)}


def test_without_java_each_table_that_needs_spark_says_so(
    tables: Tables, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    tables.add(200)
    result, spark = tables.run(instance, dry_run=False, actions=["compact"])
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}" in failure_of(result).description
    assert spark.asked > 0
    assert observed(result)[key(DEAD)]["problems"] == 0
    # What was not done does not look as if it had been.
    assert observed(result)[key(SINK)]["data_files_less"] == 0
    evaluation = checked(result)[key(SINK)]
    assert not evaluation.passed


@pytest.mark.parametrize(
    "steps", [["plan", "compact"], ["plan", "compact", "expire_snapshots", "remove_orphans", "report"]]
)
def test_without_the_steps_that_fail_the_run_its_last_step_does(
    tables: Tables, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    tables.add(200)
    result, _ = tables.run(instance, steps, dry_run=False, actions=["compact"])
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}" in failure_of(result).description
    (event,) = result.get_step_failure_events()
    assert event.step_key == f"{steps[-1]}[orders__payments_1]"
    assert set(observed(result)) == ({key(SINK), key(DEAD)} if "report" in steps else {key(DEAD)})


def test_a_step_logs_what_fails_in_it(
    tables: Tables, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    tables.add(200)
    result, _ = tables.run(instance, dry_run=False, actions=["compact"])
    assert any("compact" in said and "JAVA_HOME is" in said for said in errors_in(instance, result, "compact"))


def errors_in(instance: dg.DagsterInstance, result: Any, step: str) -> list[str]:
    return [
        entry.user_message
        for entry in instance.all_logs(result.run_id)
        if entry.level == logging.ERROR and entry.dagster_event is None and str(entry.step_key).startswith(f"{step}[")
    ]


def test_a_table_that_somebody_maintains_is_left_alone(tables: Tables, instance: dg.DagsterInstance) -> None:
    tables.add(200)
    uuid = str(tables.catalog.load_table(SINK).metadata.table_uuid)
    with table_lock(tables.settings, SINK, uuid):
        result, spark = tables.run(instance, dry_run=False)
    assert result.success
    assert spark.asked == 0
    assert observed(result)[key(SINK)]["result"].startswith(f"{SINK}: left alone: table {SINK} is being maintained by")


@pytest.mark.parametrize(
    ("config", "said", "then"),
    [
        ({"tables": ["orders.paymnts"]}, "'orders.paymnts' is neither a table of catalog frazil nor a stream.", SINK),
        ({"tables": ["paymens"]}, "'paymens' is neither", "payments"),
        ({"actions": ["compct"]}, "'compct' is no action; there are compact, ", "compact"),
    ],
)
def test_what_is_not_known_names_the_nearest(
    tables: Tables, instance: dg.DagsterInstance, config: dict[str, Any], said: str, then: str
) -> None:
    failed = failure_of(tables.run(instance, **config)[0])
    assert said in failed.description
    assert failed.metadata["next"].value == f"did you mean {then}?"


def test_before_any_stream_has_run_there_is_nothing_to_do(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    home = deployment_in(tmp_path, "payments")
    job = build_definitions(Deployment.at(home)).resolve_job_def("frazil_maintain")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success
    assert metadata_of(result, "summary")["tables"] == 0
    assert not (home / ".frazil" / "catalog.db").exists()


def test_one_run_at_a_time_and_after_all_others(tables: Tables) -> None:
    job = build_definitions(tables.deployment).resolve_job_def("frazil_maintain")
    assert {op.pool for op in job.all_node_defs if isinstance(op, dg.OpDefinition)} == {POOL}
    assert maintain_job.tags["dagster/priority"] == "-10"
    assert maintain_job.tags["dagster/max_retries"] == "0"
    assert "frazil/stream" not in maintain_job.tags


def test_compaction_and_expiry_are_steps_and_a_table_is_done_before_the_next(
    tables: Tables, instance: dg.DagsterInstance
) -> None:
    due = "metadata: {previous_versions: 7}"
    tables.in_settings(f"{{name: {SINK}, {due}}}, {{name: {DEAD}, {due}}}")
    with tables.catalog.load_table(DEAD).transaction() as change:
        change.set_properties({"frazil.as-made": "payments 0/0"})
    result, spark = tables.run(instance, dry_run=False)
    assert result.success
    assert spark.asked == 0
    steps = ("compact", "expire_snapshots", "remove_orphans", "report")
    each = [f"{step}[{table}]" for table in ("orders__payments_1", "orders__payments_dead_2") for step in steps]
    begun = [event.step_key for event in result.all_events if event.event_type_value == "STEP_START"]
    assert begun == ["plan", *each, "summary"]
    assert set(observed(result)) == {key(SINK), key(DEAD)}
    assert [seen["steps_done"] for seen in observed(result).values()] == [1, 1]
    assert metadata_of(result, "summary")["result"] == "2 of 2 tables were maintained, 0 failed"
    # Nothing is left to do, so no step but the plan has anything to look at.
    again, _ = tables.run(instance, dry_run=False)
    begun = [event.step_key for event in again.all_events if event.event_type_value == "STEP_START"]
    assert begun == ["plan", "summary"]


@pytest.mark.parametrize(
    ("name", "key", "action"),
    [
        ("frazil_compaction", "compaction", "compact"),
        ("frazil_snapshot_expiry", "snapshot_expiry", "expire_snapshots"),
        ("frazil_orphan_removal", "orphan_removal", "remove_orphans"),
    ],
)
def test_each_can_be_launched_by_itself(
    tables: Tables, instance: dg.DagsterInstance, name: str, key: str, action: str
) -> None:
    tables.add(200)
    job = build_definitions(tables.deployment).resolve_job_def(name)
    assert [node.name for node in job.all_node_defs] == ["plan", action, "report", "summary"]
    assert {op.pool for op in job.all_node_defs if isinstance(op, dg.OpDefinition)} == {POOL}
    config = {"ops": {key: {"config": {"tables": [SINK], "dry_run": True, "reason": "looking"}}}}
    result = job.execute_in_process(run_config=config, instance=instance)
    (row,) = [record.data for record in metadata_of(result, "summary")["by_table"]]
    assert ("would do compact: 200 → " in row["result"]) == (action == "compact")
    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags["frazil/action"] == "maintain"


def test_both_tables_of_a_stream_have_the_check(tables: Tables) -> None:
    graph = build_definitions(tables.deployment).resolve_asset_graph()
    checks = {check for check in graph.asset_check_keys if check.name == "table_health"}
    assert {check.asset_key for check in checks} == {key(SINK), key(DEAD)}
