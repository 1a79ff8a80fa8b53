"""What a report says of the stream's state: the word of `frazil status`, and at once when it changes."""

from __future__ import annotations

import itertools
import os
import socket
import time
from typing import Any, get_args

import dagster as dg
import pytest

from jobs.catalog import quick_catalog
from jobs.commit.stamp_fields import Counts
from jobs.state.local_store import LocalStore
from jobs.supervise.control_request import ControlRequest, write_control
from jobs.supervise.heartbeat import LastError, State
from jobs.supervise.launches import Launch, LaunchedProcess, write_launch, write_launched_process
from jobs.supervise.observation import Observation, observe
from jobs.system.boot import boot_id
from jobs.system.processes import start_time
from orchestration.cli.status.collection import status_from_state
from orchestration.reconcile.assessment import assess
from orchestration.reconcile.state_metadata import current_state_metadata
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
