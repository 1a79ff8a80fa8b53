"""Connectors of a worker's REST API: login, redirects, and answers that are none of a worker."""

from __future__ import annotations

import base64
import contextlib
import threading
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from jobs.migration import connect_worker
from jobs.migration.connect_worker import ConnectWorkerError, WorkerLogin, is_address
from jobs.migration.connectors.model import Sources
from jobs.migration.connectors.rest import read_worker
from tests.helpers.http_service import QuietHandler, serving_http

CONFIG = {"connector.class": "C", "name": "n", "topics": "t"}
EXPANDED = {
    "z": {"info": {"name": "z", "config": {**CONFIG, "name": "z"}}, "status": {"connector": {"state": "PAUSED"}}},
    "a": {"info": {"name": "a", "config": {**CONFIG, "name": "a"}}, "status": {"connector": {"state": "RUNNING"}}},
}


class Worker(QuietHandler):
    """A worker that answers by path."""

    answers: dict[str, tuple[int, Any]]
    login: str | None = None
    seen: list[str]

    def do_GET(self) -> None:  # noqa: N802
        self.seen.append(self.path)
        if self.login is not None and self.headers.get("Authorization") != self.login:
            self.say(401, {"error_code": 401, "message": "no"})
            return
        self.say(*self.answers.get(self.path, (404, {"error_code": 404})))


def ask(answers: dict[str, tuple[int, Any]], login: str | None = None, **keys: Any) -> Sources:
    handler = type("Handler", (Worker,), {"answers": answers, "login": login, "seen": []})
    with serving_http(handler) as port:
        return read_worker(f"http://127.0.0.1:{port}", WorkerLogin(**keys) if keys else None)


ALL = "/connectors?expand=info&expand=status"


def test_all_connectors_come_by_name_with_their_states() -> None:
    sources = ask({ALL: (200, EXPANDED)})
    assert [(one.name, one.state) for one in sources.connectors] == [("a", "running"), ("z", "paused")]
    assert sources.connectors[0].settings["topics"].place.path == "a.info.config.topics"


def test_a_worker_before_release_2_3_is_asked_for_each() -> None:
    answers: dict[str, tuple[int, Any]] = {
        ALL: (200, ["n/1"]),
        "/connectors/n%2F1": (200, {"name": "n/1", "config": {**CONFIG, "name": "n/1"}}),
        "/connectors/n%2F1/status": (200, {"connector": {"state": "RUNNING"}, "tasks": []}),
    }
    assert [(one.name, one.state) for one in ask(answers).connectors] == [("n/1", "running")]


def test_a_worker_without_connectors_is_named() -> None:
    sources = ask({ALL: (200, {})})
    assert sources.connectors == ()
    assert sources.skipped[0].endswith("the worker has no connectors")


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv("CONNECT_PASSWORD", "hunter2")
    return Secret("${env:CONNECT_PASSWORD}")


def test_basic_login(password: Secret) -> None:
    login = "Basic " + base64.b64encode(b"me:hunter2").decode()
    assert ask({ALL: (200, EXPANDED)}, login, user="me", password=password).connectors


def test_bearer_login(password: Secret) -> None:
    assert ask({ALL: (200, EXPANDED)}, "Bearer hunter2", password=password).connectors


def test_a_missing_or_wrong_login_is_told_without_the_password(password: Secret) -> None:
    with pytest.raises(ConnectWorkerError, match="needs a login") as missing:
        ask({ALL: (200, EXPANDED)}, "Bearer other")
    assert "--connect-user USER --connect-password '${env:NAME}'" in str(missing.value)
    with pytest.raises(ConnectWorkerError, match="refuses the login") as wrong:
        ask({ALL: (200, EXPANDED)}, "Bearer other", user="me", password=password)
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, {}), "answers HTTP 500"),
        ((404, {}), "answers HTTP 404"),
        ((307, {}), "answers HTTP 307"),
        ((200, "x"), "not as a worker of Kafka Connect"),
        ((200, b"<html>"), "not as a worker of Kafka Connect: the answer is no JSON: line 1"),
    ],
)
def test_answers_that_are_none_of_a_worker(answer: tuple[int, Any], said: str) -> None:
    with pytest.raises(ConnectWorkerError, match=said):
        ask({ALL: answer})


def test_nobody_listens() -> None:
    with serving_http(Worker) as port:
        pass
    with pytest.raises(ConnectWorkerError, match="does not answer: ConnectionError"):
        read_worker(f"http://127.0.0.1:{port}")


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(FrazilError, match="has a user or a password in it") as refused:
        read_worker("http://me:hunter2@connect:8083/api")
    assert "hunter2" not in str(refused.value)
    assert "http://connect:8083/api --connect-user USER" in str(refused.value)


def test_an_address_is_told_from_a_file() -> None:
    assert is_address("HTTPS://connect")
    assert not is_address("http.json")


@pytest.mark.parametrize("name", ["config", "info", "connectors", "connector.class"])
def test_a_connector_may_have_the_name_of_a_key(name: str) -> None:
    own = {"info": {"name": name, "config": {**CONFIG, "name": name}}, "status": {"connector": {"state": "RUNNING"}}}
    sources = ask({ALL: (200, {**EXPANDED, name: own})})
    assert [(one.name, one.connector_class) for one in sources.connectors] == [
        (found, "C") for found in sorted(["a", "z", name])
    ]


class Broken(QuietHandler):
    """A worker whose answer breaks off."""

    def do_GET(self) -> None:  # noqa: N802
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"a": ')
        self.close_connection = True


class Dripping(QuietHandler):
    """A worker whose answer comes byte by byte, each within the timeout."""

    def do_GET(self) -> None:  # noqa: N802
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(1000):
                self.wfile.write(b" ")
                threading.Event().wait(0.02)


def test_an_answer_that_breaks_off() -> None:
    with serving_http(Broken) as port, pytest.raises(ConnectWorkerError, match="does not answer"):
        read_worker(f"http://127.0.0.1:{port}")


def test_an_answer_that_never_ends() -> None:
    with serving_http(Dripping) as port, pytest.raises(ConnectWorkerError, match="answers too slowly"):
        read_worker(f"http://127.0.0.1:{port}", WorkerLogin(timeout=0.05))


def test_a_worker_that_does_not_end_rebalancing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_worker, "_REBALANCE_SECONDS", 0.0)
    with pytest.raises(ConnectWorkerError, match="has been rebalancing"):
        ask({ALL: (409, {})})


def test_a_password_with_a_slash_in_the_address_is_not_repeated() -> None:
    with pytest.raises(FrazilError, match="has a user or a password in it") as refused:
        read_worker("http://me:hunter2/x@connect:8083")
    assert "hunter2" not in str(refused.value)
