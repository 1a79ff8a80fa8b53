"""Tables that a one-off run has filled: reported once, without a driver, a run of Dagster or a heartbeat."""

from __future__ import annotations

import time
from typing import Any

import dagster as dg
import msgspec
import pytest
from pyiceberg.catalog import load_catalog

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock, boot_id
from jobs.clients.state_store.epochs import COMMAND, EpochRecord, Opener, keep_epoch
from jobs.clients.state_store.lease_record import LeaseRecord
from jobs.clients.state_store.local_store import LocalStore
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from tests.helpers.landed_table import LandedTable
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import (
    WaitingTopics,
    World,
    dead_process,
    events,
    make_table,
    told,
    values,
    work,
)

SINK = dg.AssetKey(["frazil", "orders", "orders"])
DEAD = dg.AssetKey(["frazil", "orders", "orders_dead"])
COUNTS = Counts(read=3, landed=3)


def ran(world: World, epoch: int, opener: Opener = COMMAND, *, released: bool = True) -> None:
    """The lease and the opening that a one-off run leaves behind, or has while it runs."""
    folder = world.folder("orders")
    folder.mkdir(parents=True, exist_ok=True)
    process = {"pid": 1, "started": "1", "renewed": boot_clock(), "renewed_wall": time.time(), "ttl_seconds": 3600}
    record = LeaseRecord(stream="orders", epoch=epoch, host="elsewhere", boot=boot_id(), released=released, **process)
    (folder / f"lease-{epoch:08d}.json").write_bytes(msgspec.json.encode(record))
    keep_epoch(LocalStore(folder), EpochRecord(epoch, opener, "c", "g", NOW, "elsewhere", 1))


def reports(tick: Any) -> dict[str, list[Any]]:
    """Materializations and observations of the stream's table."""
    kinds = {"materialized": dg.AssetMaterialization, "observed": dg.AssetObservation}
    return {name: [e for e in events(tick, kind) if e.asset_key == SINK] for name, kind in kinds.items()}


@pytest.fixture
def orders(world: World) -> World:
    world.write("orders")
    file = world.file("orders")
    drained = "trigger: available_now\n"
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", drained))
    return world


def test_a_table_that_a_run_has_filled_is_reported_once(orders: World) -> None:
    snapshot = make_table(orders, COUNTS)
    ran(orders, 1)
    tick = orders.tick(NOW)
    (report,) = told(tick, SINK)
    metadata = values(report)
    assert (metadata["state"], metadata["snapshot_id"]) == ("idle", str(snapshot))
    assert metadata["dagster/row_count"] == 3
    assert metadata["look_up"] == f"frazil at orders --snapshot {snapshot}"
    assert report.description == "Landed by a one-off run."
    assert report.tags == {"dagster/data_version": str(snapshot)}
    passed = {each.check_name: each.passed for each in events(tick, dg.AssetCheckEvaluation)}
    assert passed["adds_up"] is True
    for seconds in range(10, 300, 10):
        assert told(orders.tick(NOW + seconds), SINK) == []


def test_every_run_is_reported_at_once(orders: World) -> None:
    for epoch in (1, 2, 3):
        snapshot = make_table(orders, COUNTS)
        ran(orders, epoch)
        (report,) = told(orders.tick(NOW + 10 * epoch), SINK)
        assert values(report)["snapshot_id"] == str(snapshot)


def test_a_run_under_way_is_reported_when_it_has_ended(orders: World) -> None:
    make_table(orders, COUNTS)
    ran(orders, 1, released=False)
    assert told(orders.tick(NOW), SINK) == []
    ran(orders, 1)
    assert len(told(orders.tick(NOW + 10), SINK)) == 1


def test_a_run_of_dagster_has_reported_its_tables_itself(orders: World) -> None:
    snapshot = make_table(orders, COUNTS)
    ran(orders, 1, Opener("Dagster run", run_id="r"))
    assert told(orders.tick(NOW), SINK) == []
    assert orders.memory.streams["orders"].sink == snapshot


def test_a_run_that_made_no_table_is_asked_for_once(orders: World) -> None:
    load_catalog("frazil", **orders.deployment.prepared_settings().catalog.revealed()).create_namespace("orders")
    ran(orders, 1)
    assert told(orders.tick(NOW), SINK) == []
    assert orders.memory.streams["orders"].reported_epoch == 1


def test_a_catalog_that_does_not_answer_is_asked_again(orders: World) -> None:
    make_table(orders, COUNTS)
    ran(orders, 1)
    answers = orders.catalog

    def away() -> Any:
        raise FrazilError("The catalog does not answer.")

    orders.catalog = away
    assert told(orders.tick(NOW), SINK) == []
    orders.catalog = answers
    assert len(told(orders.tick(NOW + 10), SINK)) == 1


def test_a_run_after_a_driver_is_reported_and_its_own_figures_are_not_the_drivers(orders: World) -> None:
    first = make_table(orders, COUNTS)
    ended: dict[str, Any] = {**dead_process(), "state": "stopped", "epoch": 1, "lease_state": "released"}
    orders.drive("orders", now=NOW, work=work(snapshot_id=first), **ended)
    (report,) = told(orders.tick(NOW), SINK)
    assert "batch_duration_ms" in values(report)
    second = make_table(orders, COUNTS)
    ran(orders, 2)
    (report,) = told(orders.tick(NOW + 10), SINK)
    assert values(report)["snapshot_id"] == str(second)
    assert values(report)["records_added"] == 3
    assert "batch_duration_ms" not in values(report)
    assert told(orders.tick(NOW + 20), SINK) == [], "the heartbeat's older snapshot is no news"


def test_dead_letters_and_other_tables_are_reported_too(world: World) -> None:
    world.write("orders", "route: {by: id, tables: [{match: a, table: orders.of_a}, {match: b, table: orders.of_b}]}\n")
    file = world.file("orders")
    drained = "trigger: available_now\n"
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", drained))
    make_table(world, COUNTS)
    catalog = load_catalog("frazil", **world.deployment.prepared_settings().catalog.revealed())
    catalog.create_table("orders.orders_dead", DEAD_LETTER_SCHEMA)
    landed = LandedTable(world.deployment.home / "elsewhere")
    landed.catalog = catalog
    letters = landed.land_letters("orders.orders_dead", [{"offset": 0}, {"offset": 1}])
    rows = catalog.load_table("orders.orders").scan().to_arrow()
    for name in ("of_a", "of_b"):
        catalog.create_table(f"orders.{name}", rows.schema).append(rows)
    # Table of_b is suspended by the coordinator's newest stamp, so nothing is said of it.
    target = Target(catalog, "orders.orders", "orders")
    target.read()
    target.commit(Append(), Stamp("orders", "batch", 1, 1, "c", {}, {}, totals=COUNTS, parked={"orders.of_b": 1}))
    ran(world, 1)
    tick = world.tick(NOW)
    assert len(told(tick, SINK)) == 1
    (dead,) = told(tick, DEAD)
    assert (values(dead)["snapshot_id"], values(dead)["dead_letters_total"]) == (str(letters), 2)
    assert len(told(tick, dg.AssetKey(["frazil", "orders", "of_a"]))) == 1
    assert told(tick, dg.AssetKey(["frazil", "orders", "of_b"])) == []


@pytest.mark.parametrize(("waiting", "kind"), [(0, "materialized"), (7, "observed")])
def test_a_table_behind_its_freshness_policy_is_only_observed(world: World, waiting: int, kind: str) -> None:
    world.write("orders", "trigger: available_now\n")
    WaitingTopics(world, waiting)
    make_table(world, COUNTS)
    ran(world, 1)
    found = reports(world.tick(NOW))
    assert [name for name, each in found.items() if any("snapshot_id" in values(e) for e in each)] == [kind]


def test_while_kafka_does_not_say_how_fresh_a_table_is_its_report_waits(world: World) -> None:
    world.write("orders", "trigger: available_now\n")
    kafka = WaitingTopics(world)
    kafka.records = None
    make_table(world, COUNTS)
    ran(world, 1)
    assert told(world.tick(NOW), SINK) == []
    kafka.records = 0
    assert len(told(world.tick(NOW + 120), SINK)) == 1


def test_what_is_remembered_survives_the_cursor(orders: World) -> None:
    make_table(orders, COUNTS)
    ran(orders, 4)
    orders.tick(NOW)
    orders.memory = type(orders.memory).from_cursor(orders.memory.to_cursor())
    assert orders.memory.streams["orders"].reported_epoch == 4
    assert told(orders.tick(NOW + 600), SINK) == []


def test_dead_letters_that_never_were_are_reported_once(orders: World) -> None:
    snapshot = make_table(orders, Counts(read=3, landed=3))
    orders.drive("orders", now=NOW, work=work(snapshot_id=snapshot, dead=0, reasons={}))
    assert told(orders.tick(NOW), DEAD) == [], "its table has not been made yet"
    catalog = load_catalog("frazil", **orders.deployment.prepared_settings().catalog.revealed())
    catalog.create_table("orders.orders_dead", DEAD_LETTER_SCHEMA)
    tick = orders.tick(NOW + 10)
    (report,) = told(tick, DEAD)
    assert (report.description, values(report)["dead_letters_total"]) == ("No record has failed yet.", 0)
    passed = {each.check_name: each.passed for each in events(tick, dg.AssetCheckEvaluation) if each.asset_key == DEAD}
    assert passed == {"letters_waiting": True, "replay_would_help": True}
    assert told(orders.tick(NOW + 1000), DEAD) == []


def test_a_stream_that_never_ran_adds_up(orders: World) -> None:
    (added,) = [e for e in events(orders.tick(NOW), dg.AssetCheckEvaluation) if e.check_name == "adds_up"]
    assert (added.passed, added.description) == (True, "Nothing to check yet: no record has been read.")
