"""Connectors of a worker's REST API: login, redirects, and answers that are none of a worker."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from jobs.migration.connectors.model import Sources
from jobs.migration.connectors.rest import ConnectUnavailable, Login, is_address, read_worker
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
        return read_worker(f"http://127.0.0.1:{port}", Login(**keys) if keys else None)


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
    with pytest.raises(ConnectUnavailable, match="wants a login") as missing:
        ask({ALL: (200, EXPANDED)}, "Bearer other")
    assert "--user NAME --password '${env:NAME}'" in str(missing.value)
    with pytest.raises(ConnectUnavailable, match="refuses the login") as wrong:
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
    with pytest.raises(ConnectUnavailable, match=said):
        ask({ALL: answer})


def test_nobody_listens() -> None:
    with serving_http(Worker) as port:
        pass
    with pytest.raises(ConnectUnavailable, match="cannot be reached: ConnectionError"):
        read_worker(f"http://127.0.0.1:{port}")


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(FrazilError, match="has a user or a password in it") as refused:
        read_worker("http://me:hunter2@connect:8083/api")
    assert "hunter2" not in str(refused.value)
    assert "http://connect:8083/api --user NAME" in str(refused.value)


def test_an_address_is_told_from_a_file() -> None:
    assert is_address("HTTPS://connect")
    assert not is_address("http.json")
