"""Who may ask: tokens, names of this machine, pages of other origins."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret
from orchestration.connect_api.access import LEAST_TOKEN, is_loopback, read_token
from orchestration.connect_api.actions import Begin
from resources.deployment import Deployment
from tests.helpers.served_connectors import Answer, ask, serving_connectors
from tests.unit.orchestration.deployments import deployment_in

TOKEN = "correct-horse-battery-staple"
VARIABLE = "FRAZIL_TEST_CONNECT_TOKEN"


def never(*_: object) -> Begin:
    raise AssertionError("no request of these tests may act")


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[str]:
    with serving_connectors(Deployment.at(deployment_in(tmp_path / "open", "payments")), never) as url:  # pyright: ignore[reportArgumentType]
        yield url


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(VARIABLE, TOKEN)
    deployment = Deployment.at(deployment_in(tmp_path / "guarded", "payments"))
    with serving_connectors(deployment, never, Secret(f"${{env:{VARIABLE}}}")) as url:  # pyright: ignore[reportArgumentType]
        yield url


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("localhost.example.com", False),
        ("connect.internal", False),
        ("", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_token_is_read_anew_and_has_a_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Secret(f"${{env:{VARIABLE}}}")
    with pytest.raises(FrazilError, match=f"{VARIABLE} is not set"):
        read_token(reference)
    monkeypatch.setenv(VARIABLE, "x" * (LEAST_TOKEN - 1))
    with pytest.raises(FrazilError, match="fewer than 16 characters") as short:
        read_token(reference)
    assert "x" * (LEAST_TOKEN - 1) not in str(short.value)
    monkeypatch.setenv(VARIABLE, "x" * LEAST_TOKEN)
    assert read_token(reference) == "x" * LEAST_TOKEN


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic("anyone", TOKEN), basic("", TOKEN)],
)
def test_who_gives_the_token_is_answered(guarded: str, authorization: str) -> None:
    assert ask(guarded, "GET", "/connectors", Authorization=authorization).document == ["payments"]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        TOKEN,
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Digest {TOKEN}",
        basic(TOKEN, ""),
        basic("anyone", TOKEN[:-1]),
        "Basic !!!",
        "Basic " + base64.b64encode(TOKEN.encode()).decode(),
        "Bearer \xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9",
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/connectors"), ("PUT", "/connectors/payments/stop")])
def test_who_does_not_is_refused(guarded: str, authorization: str, method: str, path: str) -> None:
    refused = ask(guarded, method, path, Authorization=authorization)
    assert refused.status == 401
    assert refused.document == {"error_code": 401, "message": "HTTP 401 Unauthorized"}
    assert refused.headers["www-authenticate"] == 'Basic realm="frazil"'


def test_a_replaced_token_counts_at_once(guarded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "another-token-of-length")
    assert ask(guarded, "GET", "/", Authorization=f"Bearer {TOKEN}").status == 401
    assert ask(guarded, "GET", "/", Authorization="Bearer another-token-of-length").status == 200
    monkeypatch.delenv(VARIABLE)
    assert ask(guarded, "GET", "/", Authorization="Bearer ").status == 401


def _named(url: str, host: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.putrequest("GET", "/connectors", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    with connection.getresponse() as answer:
        status = answer.status
        answer.read()
    connection.close()
    return status


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8083", 200), ("127.0.0.1", 200), ("[::1]:8083", 200), ("evil.example:8083", 403), ("", 403)],
)
def test_without_a_token_names_of_other_machines_are_refused(open_server: str, host: str, status: int) -> None:
    assert _named(open_server, host) == status


def test_pages_of_other_origins_are_refused_also_with_the_token(open_server: str, guarded: str) -> None:
    def of_page(url: str, origin: str, **headers: str) -> Answer:
        return ask(url, "POST", "/connectors/none/restart", b"", Origin=origin, **headers)

    assert of_page(open_server, "https://evil.example").status == 403
    assert of_page(open_server, "null").status == 403
    assert of_page(open_server, open_server).status == 404
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert of_page(guarded, "https://evil.example", **token).status == 403
    assert of_page(guarded, guarded, **token).status == 404


def test_no_answer_allows_another_origin(open_server: str) -> None:
    answer = ask(open_server, "GET", "/connectors")
    assert not [name for name in answer.headers if name.startswith("access-control")]
