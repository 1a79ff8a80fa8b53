"""What a report says of the stream's state: the word of `frazil status`, and at once when it changes."""

from __future__ import annotations

import itertools
import os
import socket
import time
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from jobs.base.system.boot import boot_id
from jobs.base.system.processes import start_time
from jobs.clients.catalog.catalog import quick_catalog
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import LastError, State
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.state.observation import Observation, observe
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.cli.streams.status.collection import status_from_state
from orchestration.reconcile.assessment import assess
from orchestration.reconcile.cursor import SensorCursor
from orchestration.reconcile.state_metadata import current_state_metadata, log_tail
from orchestration.reconcile.stream_files import read_files
from orchestration.reconcile.stream_state import stream_state
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import (
    World,
    dead_process,
    events,
    make_table,
    told,
    values,
    work,
)

SINK = dg.AssetKey(["frazil", "orders", "orders"])
LINKS = {"ui_url": "http://127.0.0.1:4040", "metrics_url": "http://127.0.0.1:9400/metrics"}
STATES = get_args(State)


def seen(world: World) -> Observation:
    return observe("orders", read_files(world.deployment), world.settings)


def observed(world: World, at: float) -> list[dg.AssetObservation]:
    return [event for event in events(world.tick(at), dg.AssetObservation) if event.asset_key == SINK]


def test_a_report_says_where_the_driver_is_found(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work(5, snapshot_id=1, dead_letter_snapshot_id=2), **LINKS)
    tick = orders.tick(NOW)
    for key in (SINK, dg.AssetKey(["frazil", "orders", "orders_dead"])):
        (report,) = told(tick, key)
        assert values(report)["spark_ui"] == "http://127.0.0.1:4040"
        assert values(report)["metrics"] == "http://127.0.0.1:9400/metrics"
        assert (values(report)["driver_pid"], values(report)["driver_log"]) == (os.getpid(), "/state/driver.log")


def test_a_stopped_stream_says_so_on_its_page_at_once(orders: World) -> None:
    snapshot = make_table(orders, Counts())
    orders.drive("orders", now=NOW, work=work(0, snapshot_id=snapshot), **LINKS)
    orders.tick(NOW)
    stopped = ControlRequest("stopped", action="stop", reason="month end", by="jo", at=NOW + 35)
    write_control(LocalStore(orders.folder("orders")), stopped)
    orders.drive("orders", now=NOW + 40, state="stopped", work=work(0, snapshot_id=snapshot), **dead_process(), **LINKS)
    tick = orders.tick(NOW + 40)
    (report,) = told(tick, SINK)
    carried = values(report)
    assert (carried["state"], carried["state_since"], carried["next"]) == ("stopped", NOW + 35, "frazil start orders")
    assert carried["dagster/row_count"] == 3
    assert report.description == "The stream is stopped. Next: frazil start orders"
    assert not {"spark_ui", "metrics"} & carried.keys(), "nobody answers there"
    (alive,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "driver_alive"]
    assert (alive.passed, alive.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert alive.description == "It is stopped; stopped by jo (month end). Next: frazil start orders"
    assert observed(orders, NOW + 300) == []
    (again,) = observed(orders, NOW + 340)
    assert values(again)["state"] == "stopped"
    assert told(orders.tick(NOW + 640), SINK) == [], "a stopped stream never reads as fresh"


def test_a_driver_that_dies_while_behind_is_observed(orders: World) -> None:
    """The table would read as fresh if that were told as a materialization."""
    orders.drive("orders", now=NOW, work=work(9, snapshot_id=1, valid_through_ms=int(NOW - 4000) * 1000))
    orders.tick(NOW)
    behind = work(9, snapshot_id=1, valid_through_ms=int(NOW - 4000) * 1000)
    orders.drive("orders", now=NOW + 40, work=behind, **dead_process())
    tick = orders.tick(NOW + 40)
    assert told(tick, SINK) == []
    (report,) = [event for event in events(tick, dg.AssetObservation) if event.asset_key == SINK]
    # A stream that runs for so long is started at once.
    assert values(report)["state"] == "dead"


def test_batches_are_no_news(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work(5, snapshot_id=1, last_commit_at=NOW - 9))
    orders.tick(NOW)
    orders.drive("orders", now=NOW + 40, work=work(5, snapshot_id=1, busy_since=NOW + 39, last_commit_at=NOW - 9))
    tick = orders.tick(NOW + 40)
    assert (told(tick, SINK), [event for event in events(tick, dg.AssetObservation) if event.asset_key == SINK]) == (
        [],
        [],
    )


def test_what_flaps_is_told_every_half_minute(orders: World) -> None:
    reports = 0
    for seconds in range(0, 300, 10):
        state = "retrying" if seconds % 20 else "running"
        orders.drive("orders", now=NOW + seconds, state=state, work=work(5, snapshot_id=1))
        tick = orders.tick(NOW + seconds)
        reports += len(told(tick, SINK)) + len([e for e in events(tick, dg.AssetObservation) if e.asset_key == SINK])
    assert reports <= 11


@pytest.mark.parametrize("trigger", ["", "trigger: available_now\n"], ids=["continuous", "available_now"])
@pytest.mark.parametrize("lives", [True, False], ids=["lives", "gone"])
def test_the_word_is_that_of_the_command(orders: World, lives: bool, trigger: str) -> None:
    """Over every state of a beat, every wish, and launches that have not beaten yet."""
    orders.write("orders", trigger)
    spec = orders.deployment.stream("orders")
    process: dict[str, Any] = {} if lives else dead_process()
    compared = 0
    for state, wish, kind, busy in itertools.product(
        STATES, ("running", "paused", "stopped"), (None, "error", "operator"), (None, NOW)
    ):
        if (kind is not None) != (state in ("failed", "fenced", "retrying")) or (busy and state != "running"):
            continue
        error = LastError("no", kind, NOW, "frazil accept orders") if kind else None
        orders.drive("orders", now=NOW, state=state, error=error, work=work(busy_since=busy), **process)
        write_control(LocalStore(orders.folder("orders")), ControlRequest(wish, at=NOW))
        assessed = assess(seen(orders), NOW, 0.0)
        stands = stream_state(assessed.observed, assessed.decision, NOW)
        decided = {"action": assessed.decision.action.value, "fix": assessed.decision.fix or ""}
        note = SupervisorHeartbeat(time.time(), "here", 1, {"orders": decided})
        status = status_from_state(assessed.observed, spec, note)
        assert stands.state == status.state, (state, wish, kind, busy)
        if stands.state in ("paused", "stopped") and stands.fix is not None:
            assert stands.fix == f"frazil {'resume' if stands.state == 'paused' else 'start'} orders"
        elif stands.state in ("failed", "fenced", "retrying", "halted"):
            assert (stands.fix or "").startswith("frazil accept orders")
        compared += 1
    assert compared == 3 * (len(STATES) - 3 + 1 + 3 * 2)


def test_a_launch_that_has_not_beaten_is_starting(orders: World) -> None:
    folder, now = orders.folder("orders"), time.time()
    write_launch(LocalStore(folder), Launch(1, orders.generation("orders"), str(orders.file("orders")), 0, now), "")
    write_launched_process(
        LocalStore(folder),
        LaunchedProcess(1, "g", os.getpid(), str(start_time(os.getpid())), boot_id(), socket.gethostname(), now),
    )
    assessed = assess(seen(orders), now, 0.0)
    stands = stream_state(assessed.observed, assessed.decision, now)
    assert (stands.state, stands.since) == ("starting", now)
    assert status_from_state(assessed.observed, orders.deployment.stream("orders")).state == "starting"


def test_a_stream_that_never_ran_is_told_as_such(orders: World) -> None:
    (report,) = observed(orders, NOW)
    assert values(report)["state"] == "never ran"
    assert report.description == "It never ran. Next: frazil start orders"
    assert observed(orders, NOW + 290) == []
    assert len(observed(orders, NOW + 300)) == 1


@pytest.mark.parametrize(("wish", "passes"), [("running", True), ("paused", False)])
def test_a_paused_stream_is_no_green_one_though_its_driver_lives(orders: World, wish: Any, passes: bool) -> None:
    orders.drive("orders", now=NOW, state="paused" if wish == "paused" else "running", work=work())
    write_control(LocalStore(orders.folder("orders")), ControlRequest(wish, by="jo", at=NOW))
    (alive,) = [each for each in events(orders.tick(NOW), dg.AssetCheckEvaluation) if each.check_name == "driver_alive"]
    assert alive.passed is passes
    if not passes:
        assert alive.severity is dg.AssetCheckSeverity.WARN
        assert (alive.description or "").endswith("is paused; paused by jo. Next: frazil resume orders")


def test_a_report_of_a_run_carries_the_state_too(orders: World) -> None:
    orders.drive("orders", state="paused", work=work(), **LINKS)
    write_control(LocalStore(orders.folder("orders")), ControlRequest("paused", by="jo", at=NOW))
    carried = current_state_metadata(orders.deployment, "orders", lambda: quick_catalog(orders.settings))
    assert (carried["state"], carried["next"]) == ("paused", "frazil resume orders")
    assert carried["spark_ui"].url == "http://127.0.0.1:4040"


def test_a_stalled_driver_is_told_at_once_with_since_when_and_the_command(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work(0, snapshot_id=1))
    orders.tick(NOW)
    orders.drive("orders", now=NOW + 40, work=work(0, snapshot_id=1, lag_at=NOW + 40, unanswered_since=NOW + 9))
    (report,) = told(orders.tick(NOW + 40), SINK)
    assert {name: values(report)[name] for name in ("state", "state_since", "next")} == {
        "state": "stalled",
        "state_since": NOW + 9,
        "next": "frazil restart orders",
    }


CHANGES = dg.AssetKey(["frazil", "orders", "changes"])
DELETES = dg.AssetKey(["frazil", "orders", "deletes"])
# As the file of these tests promises: freshness.warn is 5 minutes.
EVERY = 100


def routed(names: list[str]) -> str:
    tables = ", ".join(f"{{match: {name}, table: orders.{name}}}" for name in names)
    return f"route: {{by: id, tables: [{tables}], unmatched: {{table: orders.orders}}}}\n"


@pytest.fixture
def orders(world: World) -> World:
    world.write("orders", routed(["changes", "deletes"]))
    return world


@pytest.fixture
def catalog(orders: World) -> Catalog:
    made = load_catalog("frazil", **orders.deployment.prepared_settings().catalog.revealed())
    made.create_namespace_if_not_exists("orders")
    return made


def append(catalog: Catalog, name: str, rows: int) -> int:
    """Rows by another hand will do: reports look at the table, and not at who wrote it."""
    data = pa.table({"id": [str(number) for number in range(rows)]})
    table = catalog.create_table_if_not_exists(f"orders.{name}", data.schema)
    table.append(data)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def ticked(orders: World, at: float, snapshot: int, lag: int = 5, behind: int = 5) -> Any:
    """A tick at a time, with a driver that has committed this snapshot to the stream's main table."""
    complete = int(at - behind) * 1000
    orders.drive("orders", now=at, work=work(lag, snapshot_id=snapshot, lag_at=at, valid_through_ms=complete))
    return orders.tick(at)


def test_each_table_is_told_with_its_own_rows_and_snapshot(orders: World, catalog: Catalog) -> None:
    first = {"changes": append(catalog, "changes", 3), "deletes": append(catalog, "deletes", 2)}
    tick = ticked(orders, NOW, 1)
    for key, name, rows in ((CHANGES, "changes", 3), (DELETES, "deletes", 2)):
        (report,) = told(tick, key)
        metadata = values(report)
        assert metadata["dagster/table_name"] == f"orders.{name}"
        assert (metadata["dagster/row_count"], metadata["snapshot_id"]) == (rows, str(first[name]))
        assert metadata["look_up"] == f"frazil at orders --snapshot {first[name]}"
        own = values(told(tick, SINK)[0])
        assert (metadata["complete_through"], metadata["state"]) == (NOW - 5, own["state"])
        assert report.tags == {"dagster/data_version": str(first[name])}
        # What the stream did to records is told of its own table alone.
        assert not {"records_added", "consumer_lag_records", "offsets"} & metadata.keys()
    assert values(told(tick, SINK)[0])["snapshot_id"] == "1"
    append(catalog, "changes", 4)
    second = append(catalog, "changes", 1)
    assert told(ticked(orders, NOW + 10, 2), CHANGES) == [], "as seldom as the stream's main table"
    tick = ticked(orders, NOW + EVERY + 10, 3)
    (changes,), (deletes,) = told(tick, CHANGES), told(tick, DELETES)
    assert (values(changes)["records_added"], values(changes)["dagster/row_count"]) == (5, 8)
    assert values(changes)["snapshot_id"] == str(second) and changes.description is None
    # No record went there, and it is as complete as the others: its policy must not call it overdue.
    assert (values(deletes)["records_added"], values(deletes)["snapshot_id"]) == (0, str(first["deletes"]))
    assert deletes.description == "Nothing new: no record of late went to this table."
    assert values(deletes)["complete_through"] == NOW + EVERY + 5


def test_a_quiet_stream_keeps_all_its_tables_fresh(orders: World, catalog: Catalog) -> None:
    append(catalog, "changes", 1)
    seen = [bool(told(ticked(orders, NOW + at, 1, lag=0), CHANGES)) for at in (0, 50, 100, 200, 300)]
    assert seen == [True, False, True, True, True]


def test_what_is_behind_is_observed_only(orders: World, catalog: Catalog) -> None:
    append(catalog, "changes", 1)
    append(catalog, "deletes", 1)
    assert told(ticked(orders, NOW, 1), CHANGES)
    append(catalog, "changes", 1)
    tick = ticked(orders, NOW + 400, 2, behind=301)
    assert not told(tick, CHANGES) and not told(tick, SINK)
    observed = [each for each in events(tick, dg.AssetObservation) if each.asset_key in (CHANGES, DELETES)]
    assert [(each.asset_key, values(each)["records_added"]) for each in observed] == [(CHANGES, 1)]


def test_a_table_that_is_not_there_yet_and_one_that_came_to_the_route(orders: World, catalog: Catalog) -> None:
    append(catalog, "deletes", 2)
    tick = ticked(orders, NOW, 1)
    assert told(tick, CHANGES) == [] and len(told(tick, DELETES)) == 1
    # Between two reports a table comes in before the others: what was noted is of other places.
    orders.write("orders", routed(["more", "changes", "deletes"]))
    append(catalog, "changes", 3)
    append(catalog, "more", 1)
    tick = ticked(orders, NOW + EVERY + 10, 2)
    (deletes,) = told(tick, DELETES)
    assert "records_added" not in values(deletes) and values(deletes)["dagster/row_count"] == 2
    assert len(told(tick, CHANGES)) == 1 and len(told(tick, dg.AssetKey(["frazil", "orders", "more"]))) == 1


def test_what_is_remembered_is_short_and_may_be_lost(orders: World, catalog: Catalog) -> None:
    append(catalog, "changes", 1)
    ticked(orders, NOW, 1)
    kept = orders.memory.to_cursor()
    assert SensorCursor.from_cursor(kept).streams["orders"].routed == [1, -1]
    orders.memory = SensorCursor.from_cursor(None)
    orders.memory.away_until = 2**40
    (report,) = told(ticked(orders, NOW + 20, 1), CHANGES)
    assert "records_added" not in values(report)


def test_a_stream_without_a_route_tells_of_no_other_table(world: World) -> None:
    world.write("orders")
    tick = ticked(world, NOW, 1)
    assert {each.asset_key for each in events(tick, dg.AssetMaterialization)} & {CHANGES, DELETES} == set()
    assert world.memory.streams["orders"].routed == []


def test_tables_that_values_have_named_are_told_without_being_in_the_file(world: World) -> None:
    world.write("orders", "route: {by: id, to: 'orders.of_{value}'}\n")
    catalog = load_catalog("frazil", **world.deployment.prepared_settings().catalog.revealed())
    catalog.create_namespace_if_not_exists("orders")
    own = append(catalog, "orders", 1)
    of_a, _ = append(catalog, "of_a", 3), append(catalog, "of_b", 2)
    tables = {name: catalog.load_table(f"orders.{name}") for name in ("orders", "of_a")}
    target = Target(catalog, "orders.orders", "orders")
    uuids = {f"orders.{name}": str(table.metadata.table_uuid) for name, table in tables.items()}
    stamp = Stamp("orders", "batch", 0, 1, "c", {}, {}, targets=uuids | {"orders.orders_dead": "other"})
    target.commit(Append(), stamp)
    tick = ticked(world, NOW, own)
    (found,) = told(tick, dg.AssetKey(["frazil", "orders", "of_a"]))
    assert values(found)["snapshot_id"] == str(of_a)
    assert not told(tick, dg.AssetKey(["frazil", "orders", "of_b"])), "no stamp names it: it is none of the stream"


GROUP = dg.AssetKey(["frazil", "orders", "of_{value}"])


class NamedWorld:
    """A stream whose values name tables, as its coordinator's stamp tells them."""

    def __init__(self, world: World) -> None:
        world.write("orders", "route: {by: id, to: 'orders.of_{value}'}\n")
        self.world: World = world
        self.catalog: Catalog = load_catalog("frazil", **world.deployment.prepared_settings().catalog.revealed())
        self.catalog.create_namespace_if_not_exists("orders")
        self.batch = 0
        append(self.catalog, "orders", 1)

    def name(self, *values: str) -> None:
        """A batch that knows the tables of these values."""
        tables = {f"orders.of_{each}": self.catalog.load_table(f"orders.of_{each}") for each in values}
        target = Target(self.catalog, "orders.orders", "orders")
        target.read()
        uuids = {name: str(table.metadata.table_uuid) for name, table in tables.items()}
        stamp = Stamp("orders", "batch", self.batch, 1, "c", {}, {}, targets=uuids | {"orders.orders_dead": "other"})
        target.commit(Append(), stamp)
        self.batch += 1

    def grouped(self, tick: Any) -> dict[str | None, dict[str, Any]]:
        """What is told of the asset of all, by partition."""
        return {each.partition: values(each) for each in told(tick, GROUP)}


def test_each_named_table_is_a_partition_that_is_added_when_it_is_first_told_of(world: World) -> None:
    named = NamedWorld(world)
    of_a, _ = append(named.catalog, "of_a", 3), append(named.catalog, "of_b", 2)
    named.name("a", "b")
    tick = ticked(world, NOW, 1)
    found = named.grouped(tick)
    assert {key: each["dagster/row_count"] for key, each in found.items()} == {"a": 3, "b": 2}
    assert (found["a"]["dagster/table_name"], found["a"]["snapshot_id"]) == ("orders.of_a", str(of_a))
    (asked,) = tick.partition_requests
    assert (asked.partitions_def_name, sorted(asked.partition_keys)) == ("orders.tables", ["a", "b"])
    # What did not grow is not told of again, and no partition is asked for.
    append(named.catalog, "of_b", 5)
    tick = ticked(world, NOW + EVERY, 2)
    found = named.grouped(tick)
    assert {key: each["records_added"] for key, each in found.items()} == {"b": 5}
    assert [each.partition_keys for each in tick.partition_requests] == [["b"]]
    # Nothing new anywhere: all of them are complete, and the policy of the asset has to hear of it.
    tick = ticked(world, NOW + 2 * EVERY, 3)
    assert set(named.grouped(tick)) == {None} and tick.partition_requests == []
    assert named.grouped(tick)[None]["complete_through"] == NOW + 2 * EVERY - 5


def test_a_tick_of_three_hundred_named_tables_asks_for_all_their_partitions_at_once(world: World) -> None:
    named = NamedWorld(world)
    values_ = [f"v{number:03}" for number in range(300)]
    for each in values_:
        append(named.catalog, f"of_{each}", 1)
    named.name(*values_)
    tick = ticked(world, NOW, 1)
    (asked,) = tick.partition_requests
    assert sorted(asked.partition_keys) == values_
    assert len(named.grouped(tick)) == 300
    # The cursor, of which Dagster keeps a copy with every tick, holds a number for each.
    assert len(world.memory.to_cursor()) < 4_000


def test_the_table_of_late_rows_is_told_with_its_own_rows_and_snapshot(world: World) -> None:
    world.write("orders", "event_time: {column: _kafka_timestamp, late: table}\n")
    catalog = load_catalog("frazil", **world.deployment.prepared_settings().catalog.revealed())
    catalog.create_namespace_if_not_exists("orders")
    key = dg.AssetKey(["frazil", "orders", "orders_late"])
    first = append(catalog, "orders_late", 3)
    (report,) = told(ticked(world, NOW, 1), key)
    metadata = values(report)
    assert (metadata["dagster/row_count"], metadata["snapshot_id"]) == (3, str(first))
    assert (metadata["dagster/table_name"], report.description) == ("orders.orders_late", None)
    assert report.tags == {"dagster/data_version": str(first)}
    # Nothing came late: it is as complete as the stream, and says so.
    (report,) = told(ticked(world, NOW + EVERY, 2), key)
    assert (values(report)["records_added"], report.description) == (
        0,
        "Nothing new: no record came late since it was last reported.",
    )
    second = append(catalog, "orders_late", 2)
    (report,) = told(ticked(world, NOW + 2 * EVERY, 3), key)
    assert (values(report)["records_added"], values(report)["snapshot_id"]) == (2, str(second))


def test_a_stream_that_needs_a_hand_shows_the_end_of_its_drivers_log(orders: World) -> None:
    log = orders.folder("orders") / "driver.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number} ```\n" for number in range(500)) + "x" * 1000 + "\n")
    error = LastError("offsets are gone.", "operator", NOW - 1, "frazil accept orders --lost-offsets")
    ended: dict[str, Any] = {"pid": 1, "started": "1", "boot": "gone", "lease_state": "released"}
    orders.drive("orders", now=NOW, state="failed", error=error, work=work(), log=str(log), **ended)
    (report,) = observed(orders, NOW)
    told_of = values(report)
    assert list(told_of)[:5] == ["state", "next", "state_since", "last_error", "log_tail"]
    assert (told_of["state"], told_of["next"]) == (
        "halted",
        "frazil accept orders --lost-offsets; then frazil start orders",
    )
    lines = told_of["log_tail"].splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("```", "line 489 '''", "```")
    assert len(lines) == 14 and max(map(len, lines)) == 200
    orders.drive("orders", now=NOW, work=work(), log=str(log))
    (report,) = told(orders.tick(NOW + 60), SINK)
    assert "log_tail" not in values(report), "of a stream at work nobody needs it"


def test_a_log_that_is_not_on_this_machine_is_no_trouble(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "elsewhere.log") == ""
    (tmp_path / "empty.log").touch()
    assert log_tail(tmp_path / "empty.log") == ""
