"""What is reported without a run: when, how often, with which metadata, and how much that comes to in a day."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import load_catalog

from jobs.runtime.boot import boot_clock
from jobs.supervise.heartbeat import LastError, Recent, Work
from orchestration.reconcile.memory import due
from orchestration.reconcile.observe import caught_up_seconds, most_events_a_day
from tests.unit.orchestration.reconcile.standins import World, dead_process, events

SINK = dg.AssetKey(["frazil", "orders", "orders"])
DEAD = dg.AssetKey(["frazil", "orders", "orders_dead"])
TOPIC = dg.AssetKey(["kafka", "orders.v1"])
NOW = 1_800_000_000.0


def work(lag: int = 0, **changes: Any) -> Work:
    fields: dict[str, Any] = {
        "batch": 7,
        "batches": 8,
        "read": 1000,
        "landed": 990,
        "dead": 10,
        "last_commit_seconds": 0.25,
        "last_batch_seconds": 1.5,
        "position": {"orders.v1": {"0": 600, "1": 400}},
        "lag": {"orders.v1": {"0": lag, "1": 0}},
        "lag_at": NOW,
        "valid_through_ms": int(NOW * 1000) - 5000,
        "reasons": {"wrong_type": 10},
    }
    return Work(**fields | changes)


@pytest.fixture
def orders(world: World) -> World:
    world.write("orders")
    return world


def told(tick: Any, key: dg.AssetKey) -> list[dg.AssetMaterialization]:
    return [event for event in events(tick, dg.AssetMaterialization) if event.asset_key == key]


def values(event: Any) -> dict[str, Any]:
    return {name: value.value for name, value in event.metadata.items()}


def test_a_new_snapshot_is_told_once_with_stable_names(orders: World) -> None:
    snapshot = 7_000_000_000_000_000_001
    orders.drive("orders", now=NOW, work=work(5, snapshot_id=snapshot, dead_letter_snapshot_id=12))
    tick = orders.tick(NOW)
    (sink,), (dead,) = told(tick, SINK), told(tick, DEAD)
    metadata = values(sink)
    assert metadata["snapshot_id"] == str(snapshot)
    assert sink.tags == {"dagster/data_version": str(snapshot)}
    assert metadata["offsets"] == {"orders.v1": {"0": 600, "1": 400}}
    assert (metadata["consumer_lag_records"], metadata["batch_duration_ms"], metadata["commit_ms"]) == (5, 1500, 250)
    assert (metadata["epoch"], metadata["generation"]) == (5, orders.generation("orders"))
    assert metadata["complete_through"] == NOW - 5
    assert values(dead) == {
        "snapshot_id": "12",
        "records_dead": 10,
        "epoch": 5,
        "generation": orders.generation("orders"),
        "reasons": {"wrong_type": 10},
    }
    assert told(orders.tick(NOW + 10), SINK) == []


def test_snapshots_are_gathered_for_a_minute(orders: World) -> None:
    reported: list[str] = []
    for tick in range(30):
        orders.drive("orders", now=NOW + tick * 10, work=work(5, snapshot_id=100 + tick))
        reported += [values(event)["snapshot_id"] for event in told(orders.tick(NOW + tick * 10), SINK)]
    assert reported == ["100", "106", "112", "118", "124"]


def test_a_quiet_stream_stays_fresh_only_while_it_stands_at_the_end(orders: World) -> None:
    def drive(at: float, lag: int, **changes: Any) -> list[dg.AssetMaterialization]:
        orders.drive("orders", now=at, work=work(lag, snapshot_id=100, lag_at=at - 10), **changes)
        return told(orders.tick(at), SINK)

    assert len(drive(NOW, 0)) == 1
    assert drive(NOW + 90, 0) == []
    (again,) = drive(NOW + 100, 0)
    assert again.description == "Nothing new: the stream stands at the end of its topics."
    assert values(again)["records_added"] == 0
    # Complete through the moment at which the end was looked up, though nothing was committed since.
    assert values(again)["complete_through"] == NOW + 90
    assert drive(NOW + 300, 3) == []
    assert drive(NOW + 400, 0, state="retrying") == []
    assert drive(NOW + 500, 0, state="failed", **dead_process()) == []
    assert len(drive(NOW + 600, 0)) == 1
    orders.drive("orders", now=NOW + 900, work=work(0, snapshot_id=100, lag_at=NOW + 600))
    assert told(orders.tick(NOW + 900), SINK) == [], "the end was looked up too long ago"


def test_how_often_a_quiet_stream_is_told_follows_its_freshness_policy(orders: World) -> None:
    spec = orders.deployment.stream("orders")
    assert caught_up_seconds(spec) == 100
    assert caught_up_seconds(spec.model_copy(update={"freshness": None})) == 600


def test_lag_is_observed_on_the_topic_when_it_changes_and_once_a_minute_at_most(orders: World) -> None:
    def drive(at: float, lag: int) -> list[dg.AssetObservation]:
        orders.drive("orders", now=at, work=work(lag))
        return events(orders.tick(at), dg.AssetObservation)

    (first,) = drive(NOW, 5)
    assert first.asset_key == TOPIC
    assert values(first)["lag"] == {"orders.v1": {"0": 5, "1": 0}}
    assert values(first)["consumer_lag_records"] == 5
    assert drive(NOW + 30, 6) == []
    assert len(drive(NOW + 60, 6)) == 1
    assert drive(NOW + 600, 6) == []


def test_checks_are_told_on_change_and_every_ten_minutes(orders: World) -> None:
    def drive(at: float, **changes: Any) -> dict[str, bool]:
        orders.drive("orders", now=at, **changes)
        return {event.check_name: event.passed for event in events(orders.tick(at), dg.AssetCheckEvaluation)}

    fine = dict.fromkeys(
        ["driver_alive", "batch_not_stalled", "lag_within_slo", "dead_letter_ratio", "configuration"], True
    )
    assert drive(NOW, work=work()) == fine
    assert drive(NOW + 10, work=work(3, lag_at=NOW + 10)) == {}, "other figures are no news"
    slow = work(9, busy_since=NOW - 1000, lag_at=NOW + 40)
    assert drive(NOW + 40, work=slow) == {"batch_not_stalled": False}
    assert drive(NOW + 50, work=work()) == {}, "it flaps"
    assert drive(NOW + 70, work=work()) == {"batch_not_stalled": True}
    assert drive(NOW + 590, work=work(valid_through_ms=int(NOW + 585) * 1000)) == {}
    assert drive(NOW + 600, work=work(valid_through_ms=int(NOW + 595) * 1000)) == fine


def test_failed_checks_explain_themselves(orders: World) -> None:
    orders.write("orders", "slo: {lag_records: 100, lag_time: 10m, dead_letter_ratio: 0.01}\n")

    def drive(at: float, **changes: Any) -> dict[str, Any]:
        orders.drive("orders", now=at, **changes)
        orders.memory.streams.clear()
        found = events(orders.tick(at), dg.AssetCheckEvaluation)
        return {event.check_name: event for event in found if not event.passed}

    behind = drive(NOW, work=work(500, valid_through_ms=int(NOW - 3600) * 1000))
    assert behind["lag_within_slo"].description == (
        "500 records wait; slo.lag_records allows 100; the table is 3600 s behind; 600 s are allowed. "
        "Next: frazil status orders"
    )
    many = drive(NOW, work=work(recent=Recent(300, 1000, 950, 50)))
    assert "50 of the newest 1000 records became dead letters (5.00%; 1.00% are allowed)" in (
        many["dead_letter_ratio"].description
    )
    stalled = drive(NOW, work=work(7, busy_since=NOW - 900))
    assert stalled["batch_not_stalled"].description == (
        "The driver has been at one batch for 900 s. Next: tail /state/driver.log; then frazil restart orders"
    )
    error = LastError("offsets [3, 9) of orders.v1-0 are gone", "operator", NOW, "frazil accept orders --loss")
    dead = drive(NOW, work=work(), state="failed", error=error, **dead_process())
    assert dead["driver_alive"].description == (
        "Attempt 1 failed: offsets [3, 9) of orders.v1-0 are gone. Starting it again would not help. "
        "Next: frazil accept orders --loss; then frazil start orders"
    )
    away = drive(NOW, work=work(), state="retrying", error=LastError("Kafka is away", "away", NOW, "frazil up"))
    assert away["driver_alive"].severity is dg.AssetCheckSeverity.WARN
    rolled = drive(NOW, work=work(), generation="0" * 12)
    assert rolled["configuration"].severity is dg.AssetCheckSeverity.WARN
    assert "Generation 000000000000 runs" in rolled["configuration"].description


def test_rows_come_from_the_table_when_its_snapshot_is_new(orders: World) -> None:
    import pyarrow as pa

    settings = orders.deployment.prepared_settings()
    catalog = load_catalog("frazil", **settings.catalog.revealed())
    catalog.create_namespace("orders")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("orders.orders", rows.schema)
    ids: list[int] = []
    for _ in range(3):
        table.append(rows)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        ids.append(snapshot.snapshot_id)
    orders.drive("orders", now=NOW, work=work(snapshot_id=ids[0]))
    (first,) = told(orders.tick(NOW), SINK)
    assert values(first)["dagster/row_count"] == 3
    orders.drive("orders", now=NOW + 60, work=work(snapshot_id=ids[2]))
    (last,) = told(orders.tick(NOW + 60), SINK)
    assert (values(last)["dagster/row_count"], values(last)["records_added"]) == (9, 6)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "quiet"])
def test_a_day_of_one_stream_writes_a_bounded_amount(orders: World, tmp_path: Path, busy: bool) -> None:
    hour, counts, sentences = 360, dict.fromkeys(("materialized", "observed", "checked"), 0), 0
    cursors: list[int] = []
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        # The databases are made with their first event, and grow by whole pages.
        for _ in range(200):
            instance.report_runless_asset_event(dg.AssetMaterialization("warm"))
        before = _bytes(home)
        clock = boot_clock()
        for tick in range(hour):
            at = NOW + tick * 10
            new = 100 + tick if busy else 100
            done_so_far = work(
                tick % 7 if busy else 0,
                lag_at=at,
                snapshot_id=new,
                dead_letter_snapshot_id=new,
                last_commit_at=at - 5,
                valid_through_ms=int(at - 5) * 1000,
            )
            orders.drive("orders", now=at, work=done_so_far)
            done = orders.tick(at, clock + tick * 10)
            assert done.requests == []
            for event in done.events:
                instance.report_runless_asset_event(event)
            counts["materialized"] += len(events(done, dg.AssetMaterialization))
            counts["observed"] += len(events(done, dg.AssetObservation))
            counts["checked"] += len(events(done, dg.AssetCheckEvaluation))
            cursors.append(len(orders.memory.to_cursor()))
            sentences = max(sentences, len(done.sentence))
        grown = _bytes(home) - before
    state = sum(path.stat().st_size for path in orders.settings.state.rglob("*") if path.is_file())
    files = [path for path in orders.settings.state.rglob("*") if path.is_file()]
    day = {kind: count * 24 for kind, count in counts.items()}
    ticks = 8640 * (max(cursors) + sentences)
    print(f"{'busy' if busy else 'quiet'}: a day: {day}, event log {grown * 24 / 1e6:.1f} MB, ", end="")
    print(f"cursor {max(cursors)} bytes, ticks {ticks / 1e6:.1f} MB of cursor and text; state {state} bytes")

    most = most_events_a_day()
    supervisor = 86_400 // 60
    tables = most["table"] + most["dead_letters"] if busy else most["caught_up"] * 6
    assert day["materialized"] <= tables + supervisor + 24
    assert day["observed"] <= most["lag"] + 24
    assert day["checked"] <= most["checks_steady"] + 5 * 24
    # SQLite keeps an event that belongs to no run twice, some 2 kB each time.
    assert grown * 24 < (45e6 if busy else 22e6)
    assert max(cursors) < 400
    assert len(files) == 5, "launch, its configuration, lease, heartbeat and the supervisor's note"
    assert state < 10_000


def _bytes(home: Path) -> int:
    for database in home.rglob("*.db"):
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def test_a_clock_that_is_set_back_does_not_silence_the_reports(orders: World) -> None:
    assert due(NOW, int(NOW) + 50_000, 600)
    orders.drive("orders", now=NOW, work=work(snapshot_id=1))
    orders.tick(NOW)
    orders.drive("orders", now=NOW - 90_000, work=work(snapshot_id=2))
    assert len(told(orders.tick(NOW - 90_000), SINK)) == 1


def test_the_supervisor_tells_of_itself_once_a_minute(orders: World) -> None:
    key = dg.AssetKey(["frazil", "supervisor"])
    assert [len(told(orders.tick(NOW + seconds), key)) for seconds in (0, 10, 50, 60, 119, 120)] == [1, 0, 0, 1, 0, 1]
