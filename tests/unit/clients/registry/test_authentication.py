"""Every way to log in, against a server that looks at what it is sent."""

from __future__ import annotations

import itertools
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from jobs.clients.registry.client import registry_client
from jobs.clients.registry.failures import RegistryError, RegistryRefusedError, RegistryUnavailableError
from jobs.config.services.registry import RegistrySettings
from jobs.records.formats.interface.writer_schema import SchemaId
from tests.helpers.registry_server import SCHEMA, RegistryServer, basic, serving
from tests.helpers.tls import CLIENT_PASSWORD, Tls, make_tls

OAUTH = {
    "token_url": "TOKEN_URL",
    "client_id": "frazil",
    "client_secret": "${env:FRAZIL_T_PW}",
    "scope": "registry",
    "logical_cluster": "lsrc-1",
    "identity_pool_id": "pool-1",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PW", "hunter:2/é")
    monkeypatch.setenv("FRAZIL_T_KEY", CLIENT_PASSWORD)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return make_tls(tmp_path_factory.mktemp("tls"))


def settings(url: Any, **more: Any) -> RegistrySettings:
    return RegistrySettings.model_validate({"url": url, "timeout": "5s", **more})


def ask(url: Any, **more: Any) -> str:
    client = registry_client(settings(url, **more))
    try:
        return client.schema(SchemaId(1)).schema.text
    finally:
        client.close()


def refused(url: Any, kind: type[RegistryError] = RegistryRefusedError, **more: Any) -> str:
    with pytest.raises(kind) as told:
        ask(url, **more)
    shown = f"{told.value}{told.value.__cause__}{told.value.__context__ if not told.value.__suppress_context__ else ''}"
    assert "hunter" not in shown
    assert type(told.value) is kind
    return told.value.message


def test_a_user_and_a_password() -> None:
    with serving(RegistryServer(authorization=lambda: basic("me", "hunter:2/é"))) as server:
        assert ask(server.url, basic={"user": "me", "password": "${env:FRAZIL_T_PW}"}) == SCHEMA
        said = refused(server.url, basic={"user": "you", "password": "${env:FRAZIL_T_PW}"})
        assert said == f"The schema registry at {server.url} refuses us: HTTP 401 (Unauthorized)"
        assert "HTTP 401" in refused(server.url)


def test_a_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_T_PW", "hunter2")
    with serving(RegistryServer(authorization=lambda: "Bearer hunter2")) as server:
        assert ask(server.url, bearer="${env:FRAZIL_T_PW}") == SCHEMA
        pool = {"token": "${env:FRAZIL_T_PW}", "logical_cluster": "lsrc-1", "identity_pool_id": "pool-1"}
        assert ask(server.url, bearer=pool) == SCHEMA
        _, headers = server.asked[-1]
        assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")
        monkeypatch.setenv("FRAZIL_T_PW", "hunter3")
        refused(server.url, bearer="${env:FRAZIL_T_PW}")


def oauth_server(**answer: Any) -> RegistryServer:
    """One whose provider gives the tokens t1, t2 and so on, of which the last one holds."""
    numbers = itertools.count(1)
    last = [0]

    def token() -> tuple[int, dict[str, Any]]:
        last[0] = next(numbers)
        return 200, {"access_token": f"t{last[0]}", "token_type": "Bearer"} | answer

    return RegistryServer(authorization=lambda: f"Bearer t{last[0]}", token_answer=token)


@pytest.mark.parametrize("answer", [{"expires_in": 3600}, {}], ids=["with an end", "without an end"])
def test_client_credentials(answer: dict[str, Any]) -> None:
    with serving(oauth_server(**answer)) as server:
        client = registry_client(settings(server.url, oauth=OAUTH | {"token_url": f"{server.url}/token"}))
        for _ in range(3):
            assert client.schema(SchemaId(1)).schema.text == SCHEMA
        assert len(server.forms) == 1
        assert "grant_type=client_credentials" in server.forms[0]
        assert "scope=registry" in server.forms[0]
        _, headers = server.asked[-1]
        assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")
        client.close()


def test_a_token_that_ends_soon_is_renewed() -> None:
    with serving(oauth_server(expires_in=0)) as server:
        client = registry_client(settings(server.url, oauth=OAUTH | {"token_url": f"{server.url}/token"}))
        client.check()
        client.check()
        assert len(server.forms) == 2
        client.close()


def test_a_token_that_was_revoked_is_replaced() -> None:
    with serving(oauth_server(expires_in=3600)) as server:
        client = registry_client(settings(server.url, oauth=OAUTH | {"token_url": f"{server.url}/token"}))
        client.check()
        right, answers = server.authorization, iter(["Bearer another"])
        server.authorization = lambda: next(answers, None) or right()
        client.check()
        assert len(server.forms) == 2
        client.close()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {"error": "invalid_client"}), RegistryRefusedError, "gives no token: invalid_client"),
        ((400, {"error": "invalid_scope", "error_description": "x"}), RegistryRefusedError, "invalid_scope"),
        ((200, {"token_type": "Bearer"}), RegistryRefusedError, "its answer has none"),
        ((503, {"error": "busy"}), RegistryUnavailableError, "is not well: HTTP 503"),
        ((429, {}), RegistryUnavailableError, "is not well: HTTP 429"),
        ((400, {"error": "temporarily_unavailable"}), RegistryUnavailableError, "temporarily_unavailable"),
    ],
)
def test_a_provider_that_gives_no_token(
    answer: tuple[int, dict[str, Any]], kind: type[RegistryError], said: str
) -> None:
    with serving(RegistryServer(token_answer=lambda: answer)) as server:
        oauth = OAUTH | {"token_url": f"{server.url}/token"}
        message = refused(server.url, kind, oauth=oauth)
        assert message.startswith(f"The identity provider at {server.url}/token ")
        assert said in message


def test_a_provider_that_is_away() -> None:
    with serving(RegistryServer()) as server:
        oauth = OAUTH | {"token_url": "http://127.0.0.1:1/token"}
        assert "cannot be reached" in refused(server.url, RegistryUnavailableError, oauth=oauth)


def test_a_certificate_is_checked(tls: Tls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    with serving(oauth_server(), context) as server:
        server.authorization = lambda: None
        assert ask(server.url, tls={"ca": tls.ca}) == SCHEMA
        assert ask(server.url, tls={"verify": False}) == SCHEMA
        assert "certificate verify failed" in refused(server.url)
        for trust in ({"ca": tls.ca}, {"verify": False}):
            assert ask(server.url, tls=trust, oauth=OAUTH | {"token_url": f"{server.url}/token"}) == SCHEMA


def test_a_client_with_a_certificate(tls: Tls, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    context.load_verify_locations(tls.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = {"ca": tls.ca, "certificate": tls.client, "key_password": "${env:FRAZIL_T_KEY}"}
    with serving(RegistryServer(), context) as server:
        assert ask(server.url, tls=mine) == SCHEMA
        # Nobody is asked for the password at the terminal.
        assert f"its certificates cannot be used ({tls.ca}, {tls.client})" in refused(
            server.url, tls={"ca": tls.ca, "certificate": tls.client}
        )
        assert "no trust between us" in refused(server.url, tls={"ca": tls.ca})
        gone = tmp_path / "gone.pem"
        assert str(gone) in refused(server.url, tls=mine | {"certificate": gone})
        shutil.copy(tls.ca, gone)
        assert str(gone) in refused(server.url, tls=mine | {"certificate": gone})


def test_the_next_url_is_asked_where_one_is_away() -> None:
    with serving(RegistryServer()) as server:
        assert ask(["http://127.0.0.1:1", server.url]) == SCHEMA
        assert "http://127.0.0.1:1, http://127.0.0.1:2 cannot" in refused(
            ["http://127.0.0.1:1", "http://127.0.0.1:2"], RegistryUnavailableError
        )


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ((200, "<html>sign in</html>"), RegistryError),
        ((302, ""), RegistryError),
        ((503, "<html>later</html>"), RegistryUnavailableError),
        ((503, '{"error_code": 50002, "message": "timed out"}'), RegistryUnavailableError),
        ((403, '{"error_code": 40301, "message": "denied"}'), RegistryRefusedError),
    ],
)
def test_what_answers_is_not_well_or_no_registry(broken: tuple[int, str], kind: type[RegistryError]) -> None:
    with serving(RegistryServer(broken=broken)) as server:
        assert "<html>" not in refused(server.url, kind)


def test_without_a_block_in_the_settings() -> None:
    from jobs.base.errors import FrazilError

    with pytest.raises(FrazilError) as told:
        registry_client(None)
    assert told.value.fix == "add to frazil.yaml: registry: {url: https://HOST:PORT}"
