"""The sensor as Dagster evaluates it: fifty streams at once, requests that are asked for once, and sentences."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest
from dagster._core.storage.tags import TagType, get_tag_type
from pyiceberg.catalog import Catalog

from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import state_store
from jobs.streaming.supervision.documents.heartbeat import LastError, Work
from jobs.streaming.supervision.documents.launches import SPEC_FILE, Launch, write_launch
from orchestration.definitions import build_definitions
from orchestration.jobs.control import JOB, ControlConfig, StreamAction, control_tags
from orchestration.jobs.runs import REQUEST_TAG, STREAM_TAG, WORKER_TAG, give_up_if_gone, this_worker
from orchestration.reconcile.cursor import SensorCursor
from orchestration.reconcile.decide import Action
from orchestration.reconcile.supervisor_heartbeat import read_supervisor_heartbeat
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import (
    NONSENSE,
    Sensor,
    WaitingTopics,
    World,
    dead_process,
    events,
    work,
)

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def test_fifty_streams_are_looked_at_and_three_broken_ones_are_told_apart(
    world: World, instance: dg.DagsterInstance
) -> None:
    names = [f"s{number:02d}" for number in range(50)]
    for name in names:
        world.write(name)
    sensor = Sensor(world, instance)
    generations = {name: world.generation(name) for name in names}
    # Heartbeats grow old, so they are written last, and in a moment.
    for name in names:
        world.drive(name, generation=generations[name])
    world.drive("s07", **dead_process())
    world.file("s21").write_text(world.file("s21").read_text().replace("decode:", "decod:"))
    error = LastError("the table was dropped", "error", time.time(), "frazil accept s33")
    ended = {**dead_process(), "lease_state": "released", "state": "failed", "since": time.time() - 60}
    world.drive("s33", **ended, error=error, failures=7, work=Work())

    # Of this process alone: how long it takes beside others is theirs as well.
    began = time.process_time()
    first = sensor.tick()
    seconds = time.process_time() - began
    began = time.process_time()
    second = sensor.tick()
    print(f"fifty streams: first tick {seconds:.2f} s, second {time.process_time() - began:.2f} s")
    print(f"cursor {len(sensor.cursor or '')} bytes")
    assert seconds < 20, "less than one on a usual machine"

    (request,) = first.run_requests
    assert request.tags[STREAM_TAG] == "s07"
    assert request.run_key == "s07:ensure_running:1"
    note = read_supervisor_heartbeat(LocalStore(world.settings.state))
    assert note is not None
    by_action: dict[str, list[str]] = {}
    for stream, decision in note.decisions.items():
        by_action.setdefault(decision["action"], []).append(stream)
    assert by_action == {
        "adopt": [name for name in names if name not in ("s07", "s21", "s33")],
        "start": ["s07"],
        "halt": ["s21", "s33"],
    }
    assert "runs on under generation" in note.decisions["s21"]["sentence"]
    assert "failed 8 times in a row" in note.decisions["s33"]["sentence"]
    failed = {
        (event.asset_key.path[-1], event.check_name): event.description
        for event in events(first, dg.AssetCheckEvaluation)
        if not event.passed
    }
    assert set(failed) == {("s07", "driver_alive"), ("s21", "configuration"), ("s33", "driver_alive")}
    assert "decod: unknown key; did you mean 'decode'?" in failed["s21", "configuration"]
    assert "the table was dropped" in failed["s33", "driver_alive"]
    assert failed["s33", "driver_alive"].endswith("Next: frazil accept s33; frazil start s33, after mending the cause")
    assert second.run_requests == [], "what was asked for just now is not asked for again"
    assert events(second, dg.AssetCheckEvaluation) == []


def test_a_run_that_came_to_nothing_is_asked_for_anew_under_the_next_number(world: World) -> None:
    world.write("orders")
    clock = boot_clock()
    keys = [[each.run_key for each in world.tick(clock=clock + seconds).requests] for seconds in range(0, 100, 10)]
    asked = ["orders:ensure_running:1"], ["orders:ensure_running:2"], ["orders:ensure_running:3"]
    assert keys == [asked[0], [], [], asked[1], [], [], [], [], [], asked[2]]
    # Once a launch has been made, the next one is a new matter, and not held up.
    world.drive("orders", **dead_process())
    assert len(world.tick(clock=clock + 100).requests) == 1


def test_what_cannot_be_done_is_asked_for_less_and_less_often(world: World) -> None:
    world.write("orders")
    clock = boot_clock()
    asked = [at for at in range(0, 7200, 10) if world.tick(clock=clock + at).requests]
    assert asked[:8] == [0, 30, 90, 210, 450, 930, 1530, 2130]
    assert {later - before for before, later in pairwise(asked[5:])} == {600}
    assert world.tick(clock=clock + 20_000).requests != []
    assert world.tick(clock=clock + 20_030).requests != [], "long after, it is a new matter"


def test_a_stream_with_nothing_that_can_be_launched_is_halted(world: World) -> None:
    world.write("orders")
    spec_text = world.file("orders").read_text() + "no_longer_known: true\n"
    world.drive("orders", spec_text=spec_text, **dead_process())
    world.file("orders").write_text(spec_text)
    tick = world.tick()
    assert tick.requests == []
    assert tick.decisions["orders"].action is Action.HALT
    assert tick.decisions["orders"].fix == "frazil validate"
    assert "no_longer_known" in tick.decisions["orders"].sentence


def test_a_driver_that_works_without_its_lease_is_ended(world: World) -> None:
    world.write("orders")
    clock = float(int(boot_clock()))
    world.drive("orders", lease_state="released")
    first = world.tick(clock=clock)
    assert (first.decisions["orders"].action, first.requests) == (Action.WAIT, [])
    assert world.tick(clock=clock + 89).requests == []
    world.drive("orders")
    assert world.tick(clock=clock + 95).decisions["orders"].action is Action.ADOPT
    world.drive("orders", lease_state="released")
    assert world.tick(clock=clock + 100).requests == [], "it held it meanwhile"
    last = world.tick(clock=clock + 191)
    assert [request.run_key for request in last.requests] == ["orders:let_go:1"]
    assert "which was given back) for 91 s" in last.decisions["orders"].sentence


def test_the_lag_of_a_driver_that_was_launched_paused_is_asked_of_kafka_once_a_minute(world: World) -> None:
    kafka, asked = WaitingTopics(world, 500), [0]
    world.write("orders", "slo: {lag_records: 100}\n")
    found: list[bool] = []
    for seconds in range(0, 130, 10):
        world.drive("orders", now=NOW + seconds, state="paused")
        events_now = events(world.tick(NOW + seconds), dg.AssetCheckEvaluation)
        asked.append(kafka.asked)
        found += [event.passed for event in events_now if event.check_name == "lag_within_slo"]
    assert asked == [0, *[1] * 6, *[2] * 6, 3]
    assert found == [False]
    world.drive("orders", now=NOW + 200, work=work(3, lag_at=NOW + 200))
    back = {event.check_name: event.passed for event in events(world.tick(NOW + 200), dg.AssetCheckEvaluation)}
    assert (kafka.asked, back["lag_within_slo"]) == (3, True)


def test_a_broker_that_is_away_is_asked_once_and_costs_no_stream_its_tick(world: World) -> None:
    asked, connect = [], world.kafka
    world.kafka = lambda: asked.append("kafka") or connect()
    (world.deployment.home / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:9'}\n")
    for number in range(5):
        world.write(f"s{number}", "trigger: available_now\n")
    world.memory.away_until = 0
    tick = world.tick()
    assert len(asked) == 1, "one question of four seconds, not five"
    assert {decision.action for decision in tick.decisions.values()} == {Action.IDLE}
    world.tick()
    assert len(asked) == 1, "within a minute it is not asked again"


def test_a_tick_without_requests_says_so_in_words(world: World, instance: dg.DagsterInstance) -> None:
    sensor = Sensor(world, instance)
    assert sensor.tick().skip_message == "There are no streams."
    world.write("orders")
    world.drive("orders")
    assert Sensor(world, instance).tick().skip_message == "1 stream: 1 as wanted."


def test_one_stream_that_cannot_be_looked_at_costs_no_other(world: World) -> None:
    for name, done in (("orders", NONSENSE), ("refunds", work())):
        world.write(name)
        world.drive(name, work=done)
    tick = world.tick()
    assert set(tick.decisions) == {"refunds"}
    assert "orders: not looked at: OSError: " in tick.sentence


class _Refusing:
    """Stands in for a catalog whose client quotes its address."""

    name: str = "lake"

    def load_table(self, name: str) -> Any:
        raise OSError("Max retries exceeded with url: /s3cr3t/v1/tables")


def test_no_secret_that_a_client_quotes_comes_into_a_tick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_TOKEN", "s3cr3t")
    properties = "{type: rest, uri: 'http://127.0.0.1:1', token: '${env:CATALOG_TOKEN}'}"
    (world.deployment.home / "frazil.yaml").write_text(f"catalog: {{name: lake, properties: {properties}}}\n")
    for name, done in (("orders", work()), ("refunds", NONSENSE)):
        world.write(name)
        world.drive(name, work=done)
    world.write("orders", "trigger: {every: 2m}\n")
    store = LocalStore(world.folder("orders"))
    write_launch(store, Launch(1, "former", str(world.file("orders")), 0, time.time()), "")
    world.catalog = lambda: cast(Catalog, _Refusing())

    def quoting(*arguments: object) -> None:
        raise OSError("the answer of http://here/s3cr3t is no JSON")

    monkeypatch.setattr("orchestration.sensors.reconcile.stream_row", quoting)
    tick = world.tick()
    note = read_supervisor_heartbeat(state_store(world.settings))
    said = f"{tick} {note}"
    assert "s3cr3t" not in said
    assert "url: /${env:CATALOG_TOKEN}/v1/tables" in said
    assert "http://here/${env:CATALOG_TOKEN} is no JSON" in tick.sentence


def test_a_file_whose_name_is_not_utf_8_costs_no_other(world: World) -> None:
    world.write("orders")
    world.drive("orders")
    named = os.fsencode(world.deployment.streams_folder) + b"/\xff.yaml"
    try:
        Path(os.fsdecode(named)).write_text("stream: refunds\n")
    except OSError:
        pytest.skip("this file system takes no such names")
    tick = world.tick()
    assert set(tick.decisions) == {"orders", "refunds"}
    assert "\\udcff.yaml:1:1: source: is required and missing" in tick.decisions["refunds"].sentence
    note = read_supervisor_heartbeat(state_store(world.settings))
    assert note is not None and set(note.decisions) == {"orders", "refunds"}


def test_broken_settings_change_nothing_and_are_told_on_every_stream(world: World) -> None:
    world.write("orders")
    settings = world.deployment.home / "frazil.yaml"
    settings.write_text("kafak: {}\n")
    tick = world.tick()
    assert tick.requests == []
    assert "Nothing is started or changed" in tick.sentence
    (told,) = events(tick, dg.AssetCheckEvaluation)
    assert (told.check_name, told.passed) == ("configuration", False)
    assert "kafak: unknown key" in told.description
    assert events(world.tick(), dg.AssetCheckEvaluation) == []
    settings.unlink()
    taken_back = {event.check_name: event.passed for event in events(world.tick(), dg.AssetCheckEvaluation)}
    assert taken_back["configuration"] is True


def test_a_broken_file_of_a_stream_that_ran_keeps_its_asset_and_fails_its_check(world: World) -> None:
    world.write("orders")
    world.drive("orders")
    world.file("orders").write_text("stream: orders\nsourc: {}\n")
    graph = build_definitions(world.deployment).resolve_asset_graph()
    key = dg.AssetKey(["frazil", "orders", "orders"])
    assert graph.has(key)
    assert {check.name for check in graph.asset_check_keys if check.asset_key == key} >= {"configuration"}
    assert "shown as launched last" in (graph.get(dg.AssetKey(["frazil", "problems"])).description or "")
    assert (world.folder("orders") / SPEC_FILE).exists()


def test_memory_survives_what_it_cannot_read() -> None:
    assert SensorCursor.from_cursor("not json").streams == {}
    other = SensorCursor.from_cursor('{"boot":"another","streams":{"orders":{"r":4,"l":12,"d":9,"s":77}}}')
    assert (other.streams["orders"].request, other.streams["orders"].sink) == (4, 77)
    assert (other.streams["orders"].launched, other.streams["orders"].down) == (None, None)


# Dagster warns about itself when one resource holds another.


def test_a_request_is_never_doubled(world: World, instance: dg.DagsterInstance) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    config = request.run_config["ops"]["control"]["config"]
    assert (config["stream"], config["action"], config["request"]) == ("orders", "ensure_running", 1)
    job = sensor.definitions.resolve_job_def(JOB)
    run = instance.create_run_for_job(
        job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
    )
    waiting = sensor.tick()
    assert waiting.run_requests == []
    assert f"orders: run {run.run_id[:8]} is under way" in waiting.skip_message
    # A lost cursor goes on from what Dagster still knows.
    sensor.cursor = None
    instance.report_run_failed(run)
    assert [each.tags[REQUEST_TAG] for each in sensor.tick().run_requests] == ["2"]


def test_a_lost_cursor_counts_on_however_many_actions_of_people_are_newer(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    job = sensor.definitions.resolve_job_def(JOB)

    def done(tags: dict[str, str]) -> None:
        config = request.run_config
        instance.create_run_for_job(job, run_config=config, tags=tags, status=dg.DagsterRunStatus.FAILURE)

    (request,) = sensor.tick().run_requests
    done({**request.tags, REQUEST_TAG: "41"})
    for action in [StreamAction.pause, StreamAction.resume] * 12:
        done(control_tags(ControlConfig(stream="orders", action=action, by="tester@here")))
    sensor.cursor = None
    (again,) = sensor.tick().run_requests
    assert (again.tags[REQUEST_TAG], again.run_key) == ("42", "orders:ensure_running:42")


def test_a_run_whose_process_is_gone_is_given_up(world: World, instance: dg.DagsterInstance) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    job = sensor.definitions.resolve_job_def(JOB)
    dead = dead_process()

    def run_of(*changes: tuple[str, object]) -> str:
        run = instance.create_run_for_job(
            job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
        )
        worker = this_worker(run.run_id)
        for was, now in changes:
            worker = worker.replace(was, str(now))
        instance.add_run_tags(run.run_id, {WORKER_TAG: worker})
        return run.run_id

    _, pid, started, boot, host = this_worker("").split(" ", 4)
    is_dead = (f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
    lives = run_of()
    elsewhere = run_of(is_dead, (host, "another-host"))
    killed = run_of(is_dead)
    before_a_boot = run_of((boot, "another-boot"))
    # Executed anew in the UI, it has the tags of the run before it, and has not written its own yet.
    anew = run_of(is_dead)
    instance.add_run_tags(anew, {WORKER_TAG: f"{killed} {dead['pid']} {dead['started']} {boot} {host}"})
    assert "is under way" in sensor.tick().skip_message
    found = {run.run_id: run.status for run in instance.get_runs()}
    assert found == {
        **dict.fromkeys([lives, elsewhere, anew], dg.DagsterRunStatus.STARTED),
        **dict.fromkeys([killed, before_a_boot], dg.DagsterRunStatus.FAILURE),
    }


def test_a_killed_control_run_holds_its_stream_up_for_no_longer_than_a_tick(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    job = sensor.definitions.resolve_job_def(JOB)
    run = instance.create_run_for_job(
        job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
    )
    dead = dead_process()
    _, pid, started, _ = this_worker(run.run_id).split(" ", 3)
    gone = this_worker(run.run_id).replace(f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
    instance.add_run_tags(run.run_id, {WORKER_TAG: gone})
    # It had launched a driver, which was killed with it, before the supervisor's first look.
    world.drive("orders", **dead)
    (again,) = sensor.tick().run_requests
    assert again.tags[REQUEST_TAG] == "2"
    kept = instance.get_run_by_id(run.run_id)
    assert kept is not None
    assert kept.status is dg.DagsterRunStatus.FAILURE
    assert request.tags["dagster/max_runtime"] == job.tags["dagster/max_runtime"] == "1200"


def test_the_process_of_a_run_is_nothing_for_the_list_of_runs_and_former_runs_are_known(
    instance: dg.DagsterInstance,
) -> None:
    assert get_tag_type(WORKER_TAG) is TagType.HIDDEN

    @dg.job
    def job() -> None:
        pass

    dead = dead_process()
    for tag in (WORKER_TAG, "frazil/worker"):
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        _, pid, started, _ = this_worker(run.run_id).split(" ", 3)
        gone = this_worker(run.run_id).replace(f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
        instance.add_run_tags(run.run_id, {tag: gone})
        kept = instance.get_run_by_id(run.run_id)
        assert kept is not None
        assert give_up_if_gone(instance, kept)
