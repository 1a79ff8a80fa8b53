"""Materializing a stream with a route: each table's asset says its own name, rows and snapshot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.streaming.driver.process.drain import Drained
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from jobs.tables.commit.stamp.stamps import Counts
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

CHANGES, DELETES = "orders.changes", "orders.deletes"
KINDS = ["INS", "UPD", "DEL", "OWN", "INS", "other"]


def key_of(table: str) -> dg.AssetKey:
    return dg.AssetKey(["frazil", *table.split(".")])


def materialized(home: Path, instance: dg.DagsterInstance) -> dict[str, dict[str, Any]]:
    """The metadata of each table's materialization, as plain values."""
    job = build_definitions(Deployment.at(home)).resolve_implicit_global_asset_job_def()
    keys = {key for key in job.asset_layer.selected_asset_keys if key.path[0] == "frazil" and len(key.path) == 3}
    wanted = {key for key in keys if key.path[1] == "orders"}
    result = job.get_subset(asset_selection=wanted).execute_in_process(instance=instance, raise_on_error=False)
    assert result.success
    found = result.asset_materializations_for_node("drain_payments")
    return {
        ".".join(each.asset_key.path[1:]): {name: value.value for name, value in each.metadata.items()}
        | {"version": (each.tags or {})["dagster/data_version"]}
        for each in found
        if each.tags
    }


def snapshot(stream: RoutedStream, table: str) -> str:
    return str(stream.catalog.load_table(table).metadata.current_snapshot_id)


def test_a_drain_is_told_of_each_table_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = RoutedStream(tmp_path / "home", ROUTE, trigger="available_now")
    # Rows of an earlier driver are none of this drain's.
    stream.land({"id": "x", "type": "INS"}, {"id": "y", "type": "OWN"})
    again = RoutedStream(tmp_path / "home", ROUTE, epoch=2, trigger="available_now")
    again.log = stream.log

    def drained(*_: Any) -> Drained:
        """What the drain itself does, without Kafka and Spark."""
        first = again.land(*({"id": f"a{n}", "type": kind, "n": n} for n, kind in enumerate(KINDS)), batch=0)
        second = again.land({"id": "b", "type": "DEL"}, batch=1)
        heads = {each: again.stream.targets[each.name].snapshot_id for each in again.spec.targets}
        position = {again.at: len(again.log)}
        counts = first.counts + second.counts
        return Drained(
            "payments", 2, counts, [first, second], position, snapshots=heads, valid_through_ms=1_000, seconds=1
        )

    monkeypatch.setattr("assets.materialization._drained", drained)
    with dg.DagsterInstance.ephemeral() as instance:
        told = materialized(stream.home, instance)
    assert set(told) == {SINK, f"{SINK}_dead", CHANGES, DELETES}
    for table, rows, landed, batches in ((CHANGES, 4, 3, 1), (DELETES, 3, 3, 2), (SINK, 2, 1, 2)):
        metadata = told[table]
        assert (metadata["dagster/table_name"], metadata["dagster/row_count"]) == (table, rows)
        assert (metadata["rows_landed"], metadata["batches"]) == (landed, batches), table
        head = snapshot(again, table)
        assert metadata["snapshot_id"] == metadata["version"] == head
        assert metadata["look_up"] == f"frazil at payments --snapshot {head}"
        assert (metadata["epoch"], metadata["complete_through"]) == (2, 1.0)
    # Records, of which one may be a row of several tables, are told of once.
    assert (told[SINK]["records_read"], told[SINK]["records_landed"], told[SINK]["records_dead"]) == (7, 6, 1)
    assert not {"records_read", "records_landed", "records_dead"} & (told[CHANGES].keys() | told[DELETES].keys())


def test_a_drain_is_told_of_the_tables_that_values_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    route = {"by": "type", "to": "orders.{value}"}
    stream = RoutedStream(tmp_path / "home", route, trigger="available_now")
    stream.land({"id": "x", "type": "old"})
    again = RoutedStream(tmp_path / "home", route, epoch=2, trigger="available_now")
    again.log = stream.log
    batches = iter([[{"id": "a", "type": "one"}, {"id": "b", "type": "one"}, {"id": "c", "type": "two"}], []])

    def drained(*_: Any) -> Drained:
        records = next(batches)
        done = [again.land(*records, batch=0)] if records else []
        heads = {each: again.stream.targets[each.name].snapshot_id for each in again.spec.targets}
        counts = done[0].counts if done else Counts()
        epoch = 2 if records else 3
        return Drained("payments", epoch, counts, done, {}, snapshots=heads, valid_through_ms=1_000, seconds=1)

    monkeypatch.setattr("assets.materialization._drained", drained)
    key = key_of("orders.{value}")
    with dg.DagsterInstance.ephemeral() as instance:
        materialized(stream.home, instance)
        assert set(instance.get_dynamic_partitions("payments.tables")) == {"one", "two"}
        assert instance.get_materialized_partitions(key) == {"one", "two"}
        for table, rows in (("orders.one", 2), ("orders.two", 1)):
            event = instance.get_latest_materialization_event(key_of(table))
            assert event is not None and event.asset_materialization is not None
            told = {name: value.value for name, value in event.asset_materialization.metadata.items()}
            assert (told["rows_landed"], told["dagster/row_count"], told["dagster/table_name"]) == (rows, rows, table)
            assert told["snapshot_id"] == snapshot(again, table)
        # It got nothing from this drain.
        assert instance.get_latest_materialization_event(key_of("orders.old")) is None
        materialized(stream.home, instance)
        event = instance.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.partition is None
        assert (event.asset_materialization.description or "").startswith("Nothing new")


@pytest.mark.parametrize("named", [False, True], ids=["of the file", "named by values"])
def test_a_drain_tells_that_a_table_is_parked_which_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    route: dict[str, Any] = {"by": "type", "to": "orders.{value}"} if named else ROUTE
    route = {**route, "on_table_error": "park"}
    stream, gone = RoutedStream(tmp_path / "home", route, trigger="available_now"), "orders.DEL" if named else DELETES
    stream.land({"id": "x", "type": "INS"}, {"id": "y", "type": "DEL"})
    stream.catalog.drop_table(gone)
    again = RoutedStream(tmp_path / "home", route, epoch=2, trigger="available_now")
    again.log = stream.log

    def drained(*_: Any) -> Drained:
        done = again.land({"id": "a", "type": "INS"}, {"id": "b", "type": "DEL"}, batch=0)
        heads = {each: again.stream.targets[each.name].snapshot_id for each in again.spec.targets}
        return Drained("payments", 2, done.counts, [done], {}, snapshots=heads, valid_through_ms=1_000, seconds=1)

    monkeypatch.setattr("assets.materialization._drained", drained)
    job = build_definitions(Deployment.at(stream.home)).resolve_implicit_global_asset_job_def()
    keys = {key for key in job.asset_layer.selected_asset_keys if key.path[:2] == ["frazil", "orders"]}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.get_subset(asset_selection=keys).execute_in_process(instance=instance, raise_on_error=False)
        assert result.success
        told = {each.asset_key: each.metadata for each in result.asset_materializations_for_node("drain_payments")}
        if named:
            assert instance.get_latest_materialization_event(key_of("orders.INS")) is not None
            assert instance.get_latest_materialization_event(key_of(gone)) is None
        else:
            assert str(told[key_of(gone)]["table"].value).startswith("suspended: its records wait as dead letters")
            assert told[key_of(CHANGES)]["rows_landed"].value == 1


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join(STANDIN))
    RoutedStream(tmp_path, ROUTE).land({"id": "a", "type": "INS"}, {"id": "b", "type": "UPD"})
    file = (tmp_path / "streams" / "payments.yaml").read_text()
    made = World(tmp_path)
    (tmp_path / "streams" / "payments.yaml").write_text(file)
    try:
        yield made
    finally:
        end_all(made)


def test_a_running_stream_is_told_of_each_table_by_itself(running: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        told = materialized(running.home, instance)
    rows = {table: told[table]["dagster/row_count"] for table in (SINK, CHANGES, DELETES)}
    assert rows == {SINK: 0, CHANGES: 2, DELETES: 1}
    for table in (SINK, CHANGES, DELETES):
        assert told[table]["dagster/table_name"] == table
        assert told[table]["snapshot_id"] == told[table]["version"]
        assert told[table]["look_up"] == f"frazil at payments --snapshot {told[table]['snapshot_id']}"
    assert told[SINK]["driver_pid"] == running.beat().pid and "driver_pid" not in told[CHANGES]
    assert told[CHANGES]["done"] == told[SINK]["done"]


def test_a_running_stream_tells_that_a_table_is_parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join(STANDIN))
    route = {**ROUTE, "on_table_error": "park"}
    stream = RoutedStream(tmp_path, route)
    stream.land({"id": "a", "type": "INS"}, {"id": "b", "type": "DEL"})
    stream.catalog.drop_table(DELETES)
    RoutedStream(tmp_path, route, epoch=2)
    file = (tmp_path / "streams" / "payments.yaml").read_text()
    world = World(tmp_path)
    (tmp_path / "streams" / "payments.yaml").write_text(file)
    job = build_definitions(Deployment.at(tmp_path)).resolve_implicit_global_asset_job_def()
    keys = {key for key in job.asset_layer.selected_asset_keys if key.path[:2] == ["frazil", "orders"]}
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            result = job.get_subset(asset_selection=keys).execute_in_process(instance=instance, raise_on_error=False)
            assert result.success
            told = {each.asset_key: each.metadata for each in result.asset_materializations_for_node("drain_payments")}
    finally:
        end_all(world)
    assert str(told[key_of(DELETES)]["table"].value).startswith("suspended: its records wait as dead letters")
    assert "complete_through" not in told[key_of(DELETES)] and "snapshot_id" in told[key_of(CHANGES)]
