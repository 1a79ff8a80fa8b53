"""Requests over a deployment whose drivers only beat: what they show, what they do, what they refuse."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import dagster as dg
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.processes import is_alive
from jobs.streaming.supervision.control.lifecycle import ActionResult
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.cli.common.dagster_instance import dagster_instance
from orchestration.cli.connect.connect_api import REASON, RecordedActions
from orchestration.connect_api import actions as action_module
from orchestration.connect_api.actions import ApiAction
from orchestration.connect_api.connector import CLASS, VERSION
from orchestration.connect_api.connectors import Connectors
from resources.deployment import Deployment
from tests.helpers.served_connectors import ask, serving_connectors
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, World

BY = "tester@here"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, " ".join(STANDIN))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    made = World(tmp_path)
    yield made
    end_all(made)


class Direct:
    """Actions without runs: what a request begins is done in a thread."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, stream: str, action: ApiAction) -> Future[ActionResult]:
        outcome = Future[ActionResult]()

        def act() -> None:
            try:
                outcome.set_result(self._world.control(stream).perform(action, REASON, BY))
            except BaseException as problem:
                outcome.set_exception(problem)

        threading.Thread(target=act, daemon=True).start()
        return outcome


@pytest.fixture
def url(world: World) -> Iterator[str]:
    with serving_connectors(Deployment.at(world.home), Direct(world)) as url:
        yield url


def state(url: str, stream: str = "payments") -> str:
    return ask(url, "GET", f"/connectors/{stream}/status").document["connector"]["state"]


def wait_for_state(url: str, expected: str, stream: str = "payments") -> None:
    wait_for(lambda: state(url, stream) == expected, f"{stream} to be {expected}")


def test_a_stream_is_driven_by_requests(url: str, world: World) -> None:
    assert ask(url, "GET", "/connectors").document == ["payments"]
    never = ask(url, "GET", "/connectors/payments/status").document
    assert never["connector"]["state"] == "UNASSIGNED"
    assert "Next: frazil start payments" in never["connector"]["trace"]
    assert ask(url, "PUT", "/connectors/payments/resume").status == 202
    wait_for_state(url, "RUNNING")
    status = ask(url, "GET", "/connectors/payments/status").document
    beat = world.beat()
    worker = f"{beat.host}:{beat.pid}"
    assert status == {
        "name": "payments",
        "connector": {"state": "RUNNING", "worker_id": worker, "version": VERSION},
        "tasks": [{"id": 0, "state": "RUNNING", "worker_id": worker, "version": VERSION}],
        "type": "sink",
    }
    assert ask(url, "GET", "/connectors/payments/tasks/0/status").document == status["tasks"][0]
    assert (world.request().reason, world.request().by) == (REASON, BY)

    assert ask(url, "PUT", "/connectors/payments/pause").status == 202
    wait_for_state(url, "PAUSED")
    assert world.request().mode == "paused"

    assert ask(url, "POST", "/connectors/payments/restart?onlyFailed=true&includeTasks=true").status == 202
    assert world.beat().attempt == beat.attempt, "a stream that works is not among the failed"
    restarted = ask(url, "POST", "/connectors/payments/restart?includeTasks=true")
    assert restarted.status == 202
    assert restarted.document["connector"]["state"] == "RESTARTING"
    assert [task["state"] for task in restarted.document["tasks"]] == ["RESTARTING"]
    wait_for(lambda: world.beat().attempt == beat.attempt + 1, "another attempt")
    wait_for_state(url, "PAUSED")

    assert ask(url, "PUT", "/connectors/payments/resume").status == 202
    wait_for_state(url, "RUNNING")
    attempt = world.beat().attempt
    assert ask(url, "POST", "/connectors/payments/tasks/0/restart").status == 204
    wait_for(lambda: world.beat().attempt > attempt, "another attempt")

    assert ask(url, "PUT", "/connectors/payments/stop").status == 204
    wait_for_state(url, "STOPPED")
    wait_for(lambda: not is_alive(world.beat().pid, world.beat().started), "the driver's end")
    assert ask(url, "GET", "/connectors/payments").document["tasks"] == []
    assert ask(url, "GET", "/connectors/payments/tasks").document == []
    assert ask(url, "GET", "/connectors/payments/tasks/0/status").status == 404
    attempt = world.beat().attempt
    assert ask(url, "POST", "/connectors/payments/restart").status == 204
    assert ask(url, "POST", "/connectors/payments/tasks/0/restart").status == 404
    assert (world.request().mode, world.beat().attempt) == ("stopped", attempt), "a stopped stream stays stopped"


def test_a_failed_stream_has_a_trace_with_the_next_command(
    url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "operator")
    ask(url, "PUT", "/connectors/payments/resume")
    wait_for_state(url, "FAILED")
    status = ask(url, "GET", "/connectors?expand=status").document["payments"]["status"]
    assert status["connector"]["trace"] == "the broker is made of cheese.\n  Next: eat it"
    assert status["tasks"][0]["trace"] == status["connector"]["trace"]
    monkeypatch.delenv("STANDIN")
    restarted = ask(url, "POST", "/connectors/payments/restart?onlyFailed=true&includeTasks=true")
    assert restarted.document["connector"]["state"] == "RESTARTING"
    assert "trace" not in restarted.document["connector"]
    wait_for_state(url, "RUNNING")


def test_what_is_shown(url: str, world: World) -> None:
    world.write("refunds")
    wait_for(lambda: ask(url, "GET", "/connectors").document == ["payments", "refunds"], "the new file")
    info = ask(url, "GET", "/connectors/refunds").document
    assert (info["name"], info["type"], info["tasks"]) == ("refunds", "sink", [{"connector": "refunds", "task": 0}])
    assert (info["config"]["connector.class"], info["config"]["topics"]) == (CLASS, "refunds.v1")
    assert ask(url, "GET", "/connectors/refunds/config").document == info["config"]
    (task,) = ask(url, "GET", "/connectors/refunds/tasks").document
    assert task["id"] == {"connector": "refunds", "task": 0}
    assert ask(url, "GET", "/connectors/refunds/topics").document == {"refunds": {"topics": ["refunds.v1"]}}
    assert ask(url, "GET", "/connectors/refunds/offsets").document == {"offsets": []}
    both = ask(url, "GET", "/connectors?expand=info&expand=status").document
    assert both["refunds"]["info"] == info
    assert both.keys() == {"payments", "refunds"}
    assert both["payments"].keys() == {"info", "status"}
    assert ask(url, "GET", "/connectors?expand=nonsense").document == {"payments": {}, "refunds": {}}
    root = ask(url, "GET", "/").document
    assert (root.keys(), root["commit"]) == ({"version", "commit", "kafka_cluster_id"}, f"frazil-{VERSION}")
    assert ask(url, "GET", "/health").status == 200
    assert ask(url, "HEAD", "/connectors").status == 200
    assert ask(url, "GET", "/connectors/").document == ["payments", "refunds"]
    assert ask(url, "GET", "/connector-plugins").document == [{"class": CLASS, "type": "sink", "version": VERSION}]
    valid = ask(url, "PUT", f"/connector-plugins/{CLASS}/config/validate", info["config"])
    assert (valid.status, valid.document["error_count"]) == (200, 0)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors", {"name": "more", "config": {}}),
        ("PUT", "/connectors/payments/config", {"topics": "others"}),
        ("PATCH", "/connectors/payments/config", {"topics": "others"}),
        ("PUT", "/connectors/more/config", {"topics": "others"}),
        ("DELETE", "/connectors/payments", None),
        ("PUT", "/connectors/payments/topics/reset", None),
        ("DELETE", "/connectors/payments/offsets", None),
        ("PATCH", "/connectors/payments/offsets", {"offsets": []}),
    ],
)
def test_what_is_a_file_or_a_position_is_not_changed(
    url: str, world: World, method: str, path: str, body: object
) -> None:
    before = {file.name: file.read_bytes() for file in (world.home / "streams").iterdir()}
    refused = ask(url, method, path, body)
    assert (refused.status, refused.document["error_code"]) == (403, 403)
    expected = {"offsets": "frazil reset-offsets payments", "reset": "disabled"}
    named = expected.get(path.rpartition("/")[2], "streams")
    assert named in refused.document["message"]
    assert {file.name: file.read_bytes() for file in (world.home / "streams").iterdir()} == before
    assert world.request().at == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/config"),
        ("GET", "/status"),
        ("GET", "/tasks"),
        ("GET", "/tasks/0/status"),
        ("GET", "/topics"),
        ("GET", "/offsets"),
        ("PUT", "/pause"),
        ("PUT", "/resume"),
        ("PUT", "/stop"),
        ("POST", "/restart"),
        ("POST", "/restart?includeTasks=true"),
        ("POST", "/tasks/0/restart"),
        ("DELETE", ""),
        ("DELETE", "/offsets"),
    ],
)
def test_an_unknown_name_is_404(url: str, method: str, path: str) -> None:
    refused = ask(url, method, f"/connectors/none{path}")
    assert (refused.status, refused.document) == (404, {"error_code": 404, "message": "Connector none not found"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/connectors/payments/nothing", 404),
        ("GET", "/connectors/payments/tasks/x/status", 404),
        ("GET", "/connectors/payments/tasks/1/status", 404),
        ("DELETE", "/connectors", 405),
        ("POST", "/connectors/payments/status", 405),
        ("GET", "/connector-plugins/Nonsense/config", 404),
        ("PUT", f"/connector-plugins/{CLASS}/config/validate", 400),
        ("PUT", "/connector-plugins/Nonsense/config/validate", 404),
    ],
)
def test_other_requests_get_errors_of_the_same_shape(url: str, method: str, path: str, status: int) -> None:
    refused = ask(url, method, path, b"{" if method == "PUT" else None)
    assert refused.status == status
    assert refused.document.keys() == {"error_code", "message"}
    assert refused.document["error_code"] == status


def test_a_body_that_is_too_large_or_no_object(url: str) -> None:
    path = f"/connector-plugins/{CLASS}/config/validate"
    assert ask(url, "PUT", path, b" " * 1_000_001).status == 413
    assert ask(url, "PUT", path, []).status == 400
    assert ask(url, "PUT", path, b'{"name": "\\ud800"}').status == 400
    assert ask(url, "PUT", path, b'{"name": ' + b"[" * 100_000 + b"]" * 100_000 + b"}").status == 400


def test_a_stop_that_is_not_possible_says_why(url: str, world: World) -> None:
    world.write("payments", "trigger: available_now\n")
    refused = ask(url, "POST", "/connectors/payments/tasks/0/restart")
    assert refused.status == 404, "what is drained now and then has no task"
    refused = ask(url, "PUT", "/connectors/payments/resume")
    assert refused.status == 202
    (world.home / "streams" / "payments.yaml").write_text("stream: payments\nnonsense: 1\n")
    assert ask(url, "GET", "/connectors").status == 200


def test_an_action_that_cannot_be_done_answers_with_the_next_command(tmp_path: Path) -> None:
    world = World(tmp_path)

    def refuse(stream: str, action: ApiAction) -> Future[ActionResult]:
        refused = Future[ActionResult]()
        refused.set_exception(FrazilError(f"{stream} cannot {action}.", fix="frazil status"))
        return refused

    with serving_connectors(Deployment.at(world.home), refuse) as url:
        answer = ask(url, "PUT", "/connectors/payments/pause")
    assert answer.status == 400
    assert answer.document["message"] == "payments cannot pause.\n  Next: frazil status"


def test_an_action_that_takes_long_is_answered_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_module, "ANSWER_SECONDS", 0.05)
    world, slow = World(tmp_path), Future[ActionResult]()
    with serving_connectors(Deployment.at(world.home), lambda *_: slow) as url:
        assert ask(url, "PUT", "/connectors/payments/stop").status == 204
        # Others are answered meanwhile.
        assert ask(url, "GET", "/connectors").status == 200
        slow.set_exception(FrazilError("it failed later"))
        assert ask(url, "GET", "/connectors/payments/status").status == 200


def test_many_who_ask_at_once_share_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, readings = World(tmp_path), list[float]()
    read = Connectors._read

    def counted(self: Connectors) -> object:
        readings.append(time.monotonic())
        return read(self)

    monkeypatch.setattr(Connectors, "_read", counted)
    connectors = Connectors(Deployment.at(world.home), "here:1")
    askers = [threading.Thread(target=connectors.all) for _ in range(20)]
    for each in askers:
        each.start()
    for each in askers:
        each.join()
    assert len(readings) == 1
    connectors.forget()
    connectors.all()
    assert len(readings) == 2


def test_actions_are_runs_of_dagster(world: World) -> None:
    actions = RecordedActions(Deployment.at(world.home), BY)
    actions.start()
    with serving_connectors(Deployment.at(world.home), actions.begin) as url:
        ask(url, "PUT", "/connectors/payments/resume")
        wait_for_state(url, "RUNNING")
        ask(url, "PUT", "/connectors/payments/stop")
        wait_for_state(url, "STOPPED")

    def runs() -> list[dg.DagsterRun]:
        with dagster_instance(Deployment.at(world.home)) as instance:
            return [run for run in instance.get_runs() if run.is_finished]

    wait_for(lambda: len(runs()) == 2, "two runs")
    kept = {run.tags["frazil/action"]: run for run in runs()}
    assert kept.keys() == {"resume", "stop"}
    assert all(run.is_success for run in kept.values())
    assert {(run.tags["frazil/reason"], run.tags["frazil/by"]) for run in kept.values()} == {(REASON, BY)}
