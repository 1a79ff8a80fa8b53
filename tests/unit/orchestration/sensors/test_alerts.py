"""The alert sensor over a real Dagster instance, with a real endpoint: what it sends, when, and what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from assets import dagster_names
from assets.stream_checks import CheckOutcome, evaluation
from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.stream_folder import state_store, stream_folder
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import LastError, Work, read_heartbeat, write_heartbeat
from jobs.streaming.supervision.state.observation import observe
from orchestration.alerts.alarms import alarm_of_check
from orchestration.alerts.conditions import (
    Conditions,
    look_at_checks,
    look_at_runs,
    look_at_streams,
    streams_by_asset,
)
from orchestration.alerts.memory import CLEAR_SECONDS, FIRST_PAUSE_SECONDS, AlertMemory
from orchestration.definitions import build_definitions
from orchestration.jobs.control import JOB, ControlConfig, StreamAction, control_run_config, control_tags
from orchestration.jobs.halted import JOB as HALTED_JOB
from orchestration.reconcile.stream_files import read_files
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, write_supervisor_heartbeat
from orchestration.sensors.alerts import SENSOR, run_alerts_tick
from tests.helpers.alert_receivers import Hook, receiving_hook
from tests.unit.orchestration.deployments import connections
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")
SETTINGS = """\
alerts:
  dagster_url: http://dagster.example
  targets:
    - name: hook
      severity: info
      webhook: {url: '${env:HOOK}'}
"""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with receiving_hook() as made:
        monkeypatch.setenv("HOOK", made.url)
        yield made


class Alerts:
    """The sensor of a deployment with one stream, `orders`.

    Attributes:
        now: Seconds since 1970 of the newest tick.
        said: What it said.
    """

    def __init__(self, world: World, instance: dg.DagsterInstance) -> None:
        (world.deployment.home / "frazil.yaml").write_text(SETTINGS)
        self.world: World = world
        self.instance: dg.DagsterInstance = instance
        self.definitions: dg.Definitions = build_definitions(world.deployment)
        self.cursor: str | None = None
        self.now: float = time.time()
        self.said: str = ""

    def tick(self, seconds: float = 15) -> None:
        """One tick, so many seconds after the one before; the cursor goes through its text."""
        self.now += seconds
        repository = self.definitions.get_repository_def()
        memory = AlertMemory.from_cursor(self.cursor)
        checks, jobs = set(repository.asset_graph.asset_check_keys), set(repository.job_names)
        self.said = run_alerts_tick(self.world.deployment, self.instance, checks, jobs, memory, self.now)
        self.cursor = memory.to_cursor()

    def ticks(self, *seconds: float) -> None:
        for each in seconds:
            self.tick(each)

    def report(self, check: str, *, passed: bool, sentence: str, warn: bool = False) -> None:
        """Report a check of the stream's table, as the supervisor does."""
        key = dagster_names.table_key(self.world.settings, "orders.orders")
        outcome = CheckOutcome(check, passed, sentence, "", warn=warn)
        self.instance.report_runless_asset_event(evaluation(outcome, key))

    def end(self, **changes: Any) -> None:
        """The stream's driver ends with an error that only an operator can answer."""
        error = LastError("offsets 5 to 9 are lost", "operator", time.time(), "frazil accept orders --lost-offsets")
        ended = {**dead_process(), "lease_state": "released", "state": "failed", "state_since": self.now - 7}
        self.world.drive("orders", **ended | {"error": error, "work": Work()} | changes)


@pytest.fixture
def alerts(orders: World, instance: dg.DagsterInstance) -> Alerts:
    return Alerts(orders, instance)


def brief(hook: Hook) -> list[tuple[str, str, str]]:
    return [(each["status"], each["alarm"], each["severity"]) for each in hook.alerts]


def test_a_halted_stream_is_told_when_it_begins_and_when_it_ends(alerts: Alerts, hook: Hook) -> None:
    alerts.end()
    began = alerts.now - 7
    alerts.tick()
    assert hook.posts == [], "what is to be sent is kept before it is sent"
    alerts.ticks(15, 15, 15)
    (alert,) = hook.alerts
    assert (alert["status"], alert["alarm"], alert["stream"]) == ("firing", "stream_halted", "orders")
    assert "offsets 5 to 9 are lost" in alert["what"]
    assert alert["next"] == "frazil accept orders --lost-offsets; then frazil start orders"
    assert alert["since"] == f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(int(began)))}"
    assert alert["dagster"] == "http://dagster.example/assets/frazil/orders/orders"
    assert alert["runbook"] == "docs/runbooks/stream-halted.md"
    assert alerts.said.splitlines()[0] == "1 alarm fires."
    assert "orders: stream_halted since" in alerts.said
    alerts.world.drive("orders")
    alerts.ticks(15, CLEAR_SECONDS, 15, 15)
    assert brief(hook) == [("firing", "stream_halted", "critical"), ("resolved", "stream_halted", "critical")]
    assert len({each["dedupe_key"] for each in hook.alerts}) == 1
    assert alerts.said == "No alarm fires."
    assert AlertMemory.from_cursor(alerts.cursor).alerts == []


def test_a_failed_check_is_told_with_its_next_command(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders")
    alerts.report("dead_letter_ratio", passed=False, sentence="9 of 10 records failed. Next: frazil letters orders")
    alerts.report("configuration", passed=False, sentence="Generation a runs, its file has b.", warn=True)
    alerts.report("driver_alive", passed=False, sentence="It is gone.")
    alerts.ticks(15, 60, 15)
    dead, rolled = sorted(hook.alerts, key=lambda each: each["severity"])
    assert (dead["alarm"], dead["severity"], dead["what"], dead["next"]) == (
        "dead_letters_above_limit",
        "critical",
        "9 of 10 records failed.",
        "frazil letters orders",
    )
    assert dead["subject"] == "frazil/orders/orders:dead_letter_ratio"
    assert dead["dagster"] == "http://dagster.example/assets/frazil/orders/orders?view=checks"
    assert (rolled["alarm"], rolled["severity"]) == ("configuration_invalid", "warning")
    alerts.report("dead_letter_ratio", passed=True, sentence="Fine.")
    alerts.ticks(15, CLEAR_SECONDS, 15)
    assert brief(hook)[2:] == [("resolved", "dead_letters_above_limit", "critical")]


def test_a_check_under_evaluation_counts_as_before(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders")
    alerts.report("exactly_once", passed=False, sentence="3 records are missing.")
    alerts.ticks(15, 15)
    key = dagster_names.table_key(alerts.world.settings, "orders.orders")
    planned = dg.AssetCheckKey(key, "exactly_once")
    event = DagsterEvent(
        event_type_value=DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
        job_name="audit",
        event_specific_data=AssetCheckEvaluationPlanned(asset_key=key, check_name="exactly_once"),
    )
    entry = EventLogEntry(None, 10, "", "run", time.time(), None, "audit", event)
    alerts.instance.event_log_storage.store_event(entry)
    record = alerts.instance.event_log_storage.get_latest_asset_check_execution_by_key([planned])[planned]
    assert record.status.value == "PLANNED"
    alerts.ticks(15, CLEAR_SECONDS, CLEAR_SECONDS, 15)
    assert brief(hook) == [("firing", "records_do_not_add_up", "critical")]


def test_streams_that_there_is_no_time_for_are_read_in_turn(alerts: Alerts) -> None:
    names = ["a", "b", "c"]
    alerts.world.file("orders").unlink()
    for name in names:
        alerts.world.write(name)
        error = LastError("lost", "operator", time.time(), "frazil accept")
        alerts.world.drive(name, state="failed", error=error, lease_state="released", **dead_process(), work=Work())
    files, settings = read_files(alerts.world.deployment), alerts.world.settings
    after, halted, unknown = "", [], []
    for _ in range(4):
        conditions = Conditions()
        after = look_at_streams(conditions, files, settings, alerts.now, after, seconds=0)
        halted += [each.stream for each in conditions.by_key.values()]
        unknown.append(len(conditions.unknown_streams & {*names}))
    assert (halted, unknown) == (["a", "b", "c", "a"], [2, 2, 2, 2])
    conditions = Conditions()
    assert look_at_streams(conditions, files, settings, alerts.now, after) == ""
    assert (len(conditions.by_key), conditions.unknown_streams) == (3, set())


def test_checks_that_there_is_no_time_for_are_read_in_turn(alerts: Alerts) -> None:
    key = dagster_names.table_key(alerts.world.settings, "orders.orders")
    names = [f"expectation_{number:03d}" for number in range(250)]
    keys = {dg.AssetCheckKey(key, name) for name in names}
    for name in (names[0], names[120], names[249]):
        alerts.report(name, passed=False, sentence="It is broken.")
    after, seen, unknown, of = "", [], [], {tuple(key.path): "orders"}
    for _ in range(4):
        conditions = Conditions()
        after = look_at_checks(conditions, alerts.instance, keys, of, after, seconds=0.0001)
        seen.append(sorted(each.subject[-3:] for each in conditions.by_key.values()))
        unknown.append(len(conditions.unknown))
    assert unknown == [150] * 4
    assert seen == [["000"], ["120"], ["000", "249"], ["120"]]
    conditions = Conditions()
    assert look_at_checks(conditions, alerts.instance, keys, of, after) == ""
    assert (len(conditions.by_key), len(conditions.unknown)) == (3, 0)


def test_a_delivery_that_fails_is_tried_again_and_named(alerts: Alerts, hook: Hook) -> None:
    hook.status = 503
    alerts.end()
    alerts.ticks(15, 15)
    assert len(hook.posts) == 1
    assert (
        f"hook: 1 delivery failed in a row; tried again in {FIRST_PAUSE_SECONDS} s. Alert target hook did not take a "
        "message: HTTP status 503."
    ) in alerts.said
    alerts.tick(5)
    assert len(hook.posts) == 1, "it is left alone"
    alerts.ticks(10, 15)
    assert len(hook.posts) == 2
    assert f"hook: 2 deliveries failed in a row; tried again in {2 * FIRST_PAUSE_SECONDS - 15} s." in alerts.said
    hook.status = 200
    alerts.ticks(15, 15)
    assert len(hook.posts) == 3
    assert hook.posts[0] == hook.posts[1] == hook.posts[2]
    assert {each["idempotency-key"] for each in hook.headers} == {hook.posts[0]["id"]}
    assert "failed" not in alerts.said


def test_what_was_sent_is_kept_though_nobody_can_look(
    alerts: Alerts, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts.end()
    alerts.tick()

    def broken(*arguments: object, **named: object) -> str:
        raise OSError(f"the database does not answer, and {hook.url} is a secret")

    monkeypatch.setattr("orchestration.sensors.alerts.look_at_checks", broken)
    alerts.ticks(15, 15, 15)
    assert len(hook.posts) == 1
    assert (
        alerts.said
        == "Nobody could look for alarms: OSError: the database does not answer, and ${env:HOOK} is a secret"
    )


def test_times_that_no_calendar_has_stop_no_tick(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders", work=Work(parked={"orders.b": 10**18}))
    alerts.ticks(15, 15, 15)
    assert brief(hook) == [("firing", "table_suspended", "critical")]
    write_supervisor_heartbeat(state_store(alerts.world.settings), SupervisorHeartbeat(-1e18, "host", 1))
    alerts.ticks(15, 60, 15)
    assert "deployment: supervisor_silent since 1970-01-01 00:00:00 UTC" in alerts.said


def test_a_state_that_cannot_be_read_ends_no_alarm(alerts: Alerts, hook: Hook) -> None:
    alerts.end()
    alerts.ticks(15, 15)
    control = alerts.world.folder("orders") / "control.json"
    control.write_text("{")
    observed = observe("orders", read_files(alerts.world.deployment), alerts.world.settings)
    assert observed.actual.problem
    alerts.ticks(15, CLEAR_SECONDS, CLEAR_SECONDS, 15)
    assert brief(hook) == [("firing", "stream_halted", "critical")]
    control.unlink()
    alerts.ticks(15, CLEAR_SECONDS, 15)
    assert brief(hook) == [("firing", "stream_halted", "critical")]


def test_a_stopped_stream_a_stale_heartbeat_and_a_silent_supervisor_are_told(alerts: Alerts, hook: Hook) -> None:
    folder = alerts.world.folder("orders")
    alerts.world.drive("orders", **dead_process(), lease_state="released", state="stopped")
    store = state_store(alerts.world.settings)
    of_stream = stream_folder(alerts.world.settings, "orders").store
    write_control(of_stream, ControlRequest("stopped", by="ops", at=alerts.now))
    alerts.ticks(15, 900, 15)
    assert brief(hook) == [("firing", "stream_stopped", "warning")]
    assert hook.alerts[0]["next"] == "frazil start orders"
    write_control(of_stream, ControlRequest("running", at=alerts.now))
    alerts.world.drive("orders", beat=boot_clock() - 60, beat_wall=time.time() - 60)
    write_supervisor_heartbeat(store, SupervisorHeartbeat(alerts.now - 300, "host", 1))
    alerts.ticks(15, 120, 15)
    found = {(each["alarm"], each["stream"]) for each in hook.alerts if each["status"] == "firing"}
    assert found == {("stream_stopped", "orders"), ("heartbeat_stale", "orders"), ("supervisor_silent", None)}
    assert folder.is_dir()


def test_a_stream_whose_file_is_removed_needs_nobody(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders", **dead_process(), lease_state="released", state="stopped")
    store = stream_folder(alerts.world.settings, "orders").store
    write_control(store, ControlRequest("stopped", by="ops", at=alerts.now))
    alerts.ticks(15, 900, 15)
    assert brief(hook) == [("firing", "stream_stopped", "warning")]
    alerts.world.write("refunds")
    alerts.world.file("orders").unlink()
    alerts.ticks(15, CLEAR_SECONDS, 15)
    assert brief(hook)[1:] == [("resolved", "stream_stopped", "warning")]


def test_a_folder_that_is_away_for_a_moment_moves_no_alarm(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders")
    alerts.report("exactly_once", passed=False, sentence="3 records are missing.")
    alerts.ticks(15, 15)
    folder = alerts.world.deployment.streams_folder
    folder.rename(folder.with_name("away"))
    alerts.ticks(15, CLEAR_SECONDS, CLEAR_SECONDS, 15)
    folder.with_name("away").rename(folder)
    alerts.ticks(15, CLEAR_SECONDS, 15)
    assert [(each["status"], each["alarm"], each["stream"]) for each in hook.alerts] == [
        ("firing", "records_do_not_add_up", "orders")
    ]


def test_a_file_that_breaks_moves_no_alarm_of_a_stream_that_was_only_drained(alerts: Alerts, hook: Hook) -> None:
    alerts.report("exactly_once", passed=False, sentence="3 records are missing.")
    alerts.ticks(15, 15)
    alerts.world.file("orders").write_text("stream: orders\n")
    alerts.ticks(15, CLEAR_SECONDS, CLEAR_SECONDS, 15)
    assert [(each["status"], each["alarm"], each["stream"]) for each in hook.alerts] == [
        ("firing", "records_do_not_add_up", "orders")
    ]


def test_a_failing_check_of_a_stream_without_a_file_needs_nobody(alerts: Alerts, hook: Hook) -> None:
    alerts.world.drive("orders", **dead_process(), lease_state="released", state="stopped")
    alerts.report("exactly_once", passed=False, sentence="3 records are missing.")
    alerts.ticks(15, 15)
    alerts.world.write("refunds")
    alerts.world.file("orders").unlink()
    # Dagster has loaded the check still.
    alerts.ticks(15, CLEAR_SECONDS, 15, 15)
    assert [(each["status"], each["stream"]) for each in hook.alerts] == [("firing", "orders"), ("resolved", "orders")]


def test_every_check_belongs_to_a_stream(alerts: Alerts) -> None:
    tables = "route: {by: id, tables: [{match: x, table: orders.x}], unmatched: {table: orders.tables}}\n"
    alerts.world.write("tables", tables)
    alerts.world.write("late", "event_time: {column: created_at, closes: hour, late: {}}\n")
    alerts.world.write("named", "route: {by: id, to: 'named.{value}'}\n")
    expected = "[{expect_column_values_to_not_be_null: {column: id}}]"
    alerts.world.write("checked", f"contract: {{expectations: {expected}}}\n")
    specs, errors = alerts.world.deployment.streams()
    assert errors == []
    streams = streams_by_asset(specs, alerts.world.settings)
    keys = build_definitions(alerts.world.deployment).get_repository_def().asset_graph.asset_check_keys
    conditions = Conditions()
    for key in keys:
        alerts.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=key.asset_key, check_name=key.name, passed=False, metadata={})
        )
    assert look_at_checks(conditions, alerts.instance, keys, streams, seconds=60) == ""
    assert {each.stream for each in conditions.by_key.values()} == {spec.stream for spec in specs}
    assert len(conditions.by_key) == len({key for key in keys if alarm_of_check(key.name) is not None})


def test_what_a_heartbeat_tells_of_tables_and_letters_is_told(alerts: Alerts, hook: Hook) -> None:
    at = int(alerts.now)
    lag = {"orders.v1": {"0": 0}}
    undecided = {"lag": lag, "lag_at": alerts.now, "undecided": {"orders.v1": {"0": 4}}, "undecided_since": at - 30}
    work = Work(parked={"orders.b": (at - 60) * 1000}, parked_letters={"orders.b": 9}, **undecided)
    beat = alerts.world.drive("orders", work=work)
    store = stream_folder(alerts.world.settings, "orders").store
    assert read_heartbeat(store) is not None
    error = LastError("the topic is full", "away", at - 30, "enlarge it")
    write_heartbeat(store, msgspec.structs.replace(beat, unpublished_letters=7, outbox_error=error))
    alerts.ticks(15, 300, 15)
    assert {each["alarm"] for each in hook.alerts} == {"table_suspended", "dead_letters_unpublished"}
    alerts.ticks(600, 15)
    found = {each["alarm"]: each for each in hook.alerts}
    assert found.keys() == {"table_suspended", "transaction_open", "dead_letters_unpublished"}
    assert found["table_suspended"]["subject"] == "orders.b"
    assert found["table_suspended"]["next"] == "frazil accept orders --unpark orders.b, once it takes commits"
    assert "7 dead letters are not in their topic: the topic is full" in found["dead_letters_unpublished"]["what"]
    assert found["dead_letters_unpublished"]["next"] == "enlarge it"


def test_a_failed_run_is_told_until_one_succeeds(alerts: Alerts, hook: Hook) -> None:
    job = alerts.definitions.resolve_job_def(JOB)

    def run(action: StreamAction) -> dg.DagsterRunStatus:
        config = ControlConfig(stream="orders", action=action, reason="a test", by="tester")
        resources = {"deployment": connections(alerts.world.deployment)["deployment"]}
        result = job.execute_in_process(
            control_run_config(config),
            instance=alerts.instance,
            tags=control_tags(config),
            raise_on_error=False,
            resources=resources,
        )
        run = alerts.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run.status

    alerts.world.file("orders").write_text("stream: orders\n")
    assert run(StreamAction.roll) is dg.DagsterRunStatus.FAILURE
    alerts.now = time.time()
    alerts.ticks(0, 15, 15)
    (failed,) = [each for each in hook.alerts if each["alarm"] == "run_failed"]
    assert (failed["status"], failed["subject"], failed["stream"]) == ("firing", JOB, "orders")
    assert failed["dagster"].startswith("http://dagster.example/runs/")
    alerts.world.write("orders")
    assert run(StreamAction.pause) is dg.DagsterRunStatus.SUCCESS
    alerts.now = time.time()
    alerts.ticks(0, 15, 15)
    of_run = [each["status"] for each in hook.alerts if each["alarm"] == "run_failed"]
    assert of_run == ["firing", "resolved"]


def test_runs_are_seen_after_the_clock_was_set_back(alerts: Alerts, hook: Hook) -> None:
    alerts.cursor = AlertMemory(runs_at=time.time() + 7200).to_cursor()
    run = dg.DagsterRun(JOB, "00000000-0000-4000-8000-000000000001", status=dg.DagsterRunStatus.FAILURE)
    alerts.instance.run_storage.add_run(run)
    alerts.ticks(0, 15)
    assert [each["alarm"] for each in hook.alerts] == ["run_failed"]


def test_runs_of_assets_are_told_apart_by_stream_and_by_code_location(alerts: Alerts, hook: Hook) -> None:
    alerts.world.write("refunds")
    keys = {name: dagster_names.table_key(alerts.world.settings, f"orders.{name}") for name in ("orders", "refunds")}
    (job,) = [name for name in alerts.definitions.get_repository_def().job_names if name.startswith("__ASSET_JOB")]

    def ended(number: int, status: dg.DagsterRunStatus, location: str, *selected: dg.AssetKey) -> None:
        where = RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin("127.0.0.1", 1, location_name=location), "r")
        run = dg.DagsterRun(
            job,
            f"00000000-0000-4000-8000-{number:012d}",
            status=status,
            asset_selection=frozenset(selected) or None,
            remote_job_origin=RemoteJobOrigin(where, job),
        )
        alerts.instance.run_storage.add_run(run)

    def failed(jobs_of: str | None) -> set[str]:
        conditions, streams = Conditions(), {tuple(key.path): name for name, key in keys.items()}
        look_at_runs(conditions, alerts.instance, [job], streams, time.time() - 60, jobs_of)
        return set(conditions.by_key)

    ended(1, dg.DagsterRunStatus.FAILURE, "frazil", keys["orders"])
    ended(2, dg.DagsterRunStatus.FAILURE, "marketing", dg.AssetKey("campaigns"))
    ended(3, dg.DagsterRunStatus.SUCCESS, "frazil", keys["refunds"])
    ended(4, dg.DagsterRunStatus.SUCCESS, "marketing", keys["orders"])
    assert failed("frazil") == {f"run_failed/orders/{job}"}
    assert failed("marketing") == {f"run_failed//{job}"}
    assert failed(None) == {f"run_failed//{job}"}
    ended(5, dg.DagsterRunStatus.SUCCESS, "frazil", keys["orders"])
    assert failed("frazil") == set()


def test_the_run_that_reports_halted_streams_raises_no_alarm_of_its_own(alerts: Alerts, hook: Hook) -> None:
    config = {
        "streams": [{"stream": "orders", "sentence": "offsets are gone", "fix": "frazil accept orders --lost-offsets"}]
    }
    job = alerts.definitions.resolve_job_def(HALTED_JOB)
    result = job.execute_in_process(
        {"ops": {"halted": {"config": config}}}, instance=alerts.instance, raise_on_error=False
    )
    assert not result.success
    alerts.now = time.time()
    alerts.ticks(0, 15, 15)
    assert hook.alerts == []


def test_the_sensor_is_there_with_a_target_and_keeps_no_secret(
    alerts: Alerts, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [sensor.name for sensor in alerts.definitions.get_repository_def().sensor_defs]
    assert SENSOR in names
    monkeypatch.setenv("HOOK", f"{hook.url}/s3cr3t")
    alerts.end(error=LastError(f"{hook.url}/s3cr3t refused", "operator", time.time(), "x"))
    cursor: str | None = None
    for _ in range(2):
        with dg.build_sensor_context(
            alerts.instance,
            cursor,
            definitions=alerts.definitions,
            resources={"deployment": connections(alerts.world.deployment)["deployment"]},
        ) as context:
            result: Any = alerts.definitions.resolve_sensor_def(SENSOR).evaluate_tick(context)
        cursor = result.cursor
        assert "s3cr3t" not in f"{cursor} {result.skip_message}"
    assert hook.paths == ["/hook/s3cr3t"]
    assert "${env:HOOK} refused" in hook.alerts[0]["what"]
    (alerts.world.deployment.home / "frazil.yaml").write_text("alerts: {targets: []}\n")
    without = build_definitions(alerts.world.deployment).get_repository_def()
    assert SENSOR not in [sensor.name for sensor in without.sensor_defs]
    (alerts.world.deployment.home / "frazil.yaml").write_text("alerts: {target: []}\n")
    broken = build_definitions(alerts.world.deployment).get_repository_def()
    assert SENSOR in [sensor.name for sensor in broken.sensor_defs], "it goes on once they can be read"


def test_settings_that_cannot_be_read_change_no_memory(alerts: Alerts, hook: Hook) -> None:
    alerts.end()
    alerts.tick()
    kept = alerts.cursor
    (alerts.world.deployment.home / "frazil.yaml").write_text("alerts: {target: []}\n")
    with dg.build_sensor_context(
        alerts.instance,
        kept,
        definitions=alerts.definitions,
        resources={"deployment": connections(alerts.world.deployment)["deployment"]},
    ) as context:
        result: Any = alerts.definitions.resolve_sensor_def(SENSOR).evaluate_tick(context)
    assert result.cursor == kept
    assert "alerts.target: unknown key" in result.skip_message
    assert hook.posts == []


def test_many_alarms_go_in_one_message(tmp_path: Path, instance: dg.DagsterInstance, hook: Hook) -> None:
    world = World(tmp_path / "many")
    names = [f"s{number:02d}" for number in range(25)]
    for name in names:
        world.write(name)
    alerts = Alerts(world, instance)
    generations = {name: world.generation(name) for name in names}
    error = LastError("lost", "operator", time.time(), "frazil accept")
    for name in names:
        world.drive(
            name, generation=generations[name], state="failed", error=error, lease_state="released",
            **dead_process(), work=Work(),
        )  # fmt: skip
    alerts.ticks(15, 15)
    assert [len(post["alerts"]) for post in hook.posts] == [20]
    alerts.ticks(15, 15)
    assert [len(post["alerts"]) for post in hook.posts] == [20, 5]
    assert {each["stream"] for each in hook.alerts} == set(names)
    assert "and 13 more" in alerts.said
