"""REST client of a Kafka Connect worker: states, stop, login, and answers that no worker gives."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs.config.documents.secrets import Secret
from jobs.migration import connect_worker
from jobs.migration.connect_worker import ConnectorState, ConnectWorker, ConnectWorkerError, WorkerLogin
from tests.helpers.http_service import QuietHandler, serving_http

PASSWORD = "pa55-of-the-tests"


class Worker:
    """What a worker answers, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, str | None]] = []

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        left = self.answers.get((method, path), [(404, {"error_code": 404, "message": "not found"})])
        return left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def serving(worker: Worker) -> Iterator[str]:
    class Handler(QuietHandler):
        def handle_any(self) -> None:
            self.body()
            worker.asked.append((self.command, self.path, self.headers.get("Authorization")))
            self.say(*worker.answer(self.command, self.path))

        do_GET = do_PUT = handle_any  # noqa: N815

    with serving_http(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_connectors_class_state_and_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_worker, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("CONNECT_PASSWORD", PASSWORD)
    worker = Worker()
    worker.answers = {
        ("GET", "/connectors/a%20b/config"): [(200, {"name": "a b", "tasks.max": "2"})],
        ("GET", "/connectors/a%20b/status"): [
            (409, {}),
            (200, {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}),
            (200, {"connector": {"state": "STOPPED"}, "tasks": []}),
        ],
        ("PUT", "/connectors/a%20b/stop"): [(204, b"")],
    }
    with serving(worker) as url:
        rest = ConnectWorker(f"{url}/", WorkerLogin("me", Secret("${env:CONNECT_PASSWORD}")))
        assert rest.config("a b") == {"name": "a b", "tasks.max": "2"}
        state = rest.state("a b")
        assert state == ConnectorState("RUNNING", ("RUNNING",))
        rest.stop("a b")
        assert rest.state("a b") == ConnectorState("STOPPED", ())
        assert rest.state("other") is None
    expected = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    assert {authorization for _, _, authorization in worker.asked} == {expected}
    assert PASSWORD not in repr(vars(rest))


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        (ConnectorState("STOPPED", ()), True),
        (ConnectorState("STOPPED", ("RUNNING",)), False),
        (ConnectorState("PAUSED", ()), False),
        (ConnectorState("PAUSED", ("PAUSED",)), False),
        (ConnectorState("FAILED", ("FAILED",)), False),
        (ConnectorState("UNASSIGNED", ()), False),
    ],
)
def test_only_a_stopped_connector_without_tasks_is_stopped(state: ConnectorState, stopped: bool) -> None:
    assert state.stopped is stopped


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "older than Kafka 3.5"), (405, "older than Kafka 3.5"), (401, "needs a login"), (500, "answers HTTP 500")],
)
def test_a_worker_that_does_not_stop_a_connector_says_why(status: int, said: str) -> None:
    worker = Worker()
    worker.answers = {("PUT", "/connectors/c/stop"): [(status, {"message": "no"})]}
    with serving(worker) as url, pytest.raises(ConnectWorkerError, match=said):
        ConnectWorker(url).stop("c")


def test_an_unknown_connector_is_told_with_those_that_exist() -> None:
    worker = Worker()
    worker.answers = {("GET", "/connectors"): [(200, ["b", "a"])]}
    with serving(worker) as url, pytest.raises(ConnectWorkerError, match="no connector c; it has a, b"):
        ConnectWorker(url).config("c")


def test_what_is_no_worker_is_named() -> None:
    worker = Worker()
    worker.answers = {("GET", "/connectors/c/status"): [(200, b"<html>")]}
    with serving(worker) as url, pytest.raises(ConnectWorkerError, match="not as a worker of Kafka Connect"):
        ConnectWorker(url).state("c")
    worker.answers = {("GET", "/connectors/c/status"): [(200, {"connector": "c"})]}
    with serving(worker) as url, pytest.raises(ConnectWorkerError, match="is no state of a connector"):
        ConnectWorker(url).state("c")
    with pytest.raises(ConnectWorkerError, match="does not answer"):
        ConnectWorker("http://127.0.0.1:1").state("c")


@pytest.mark.parametrize(
    "url",
    ["connect:8083", "ftp://connect", f"http://me:{PASSWORD}@connect", f"http://me:{PASSWORD}/x@connect", "http://"],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConnectWorkerError) as refused:
        ConnectWorker(url)
    assert PASSWORD not in str(refused.value)
