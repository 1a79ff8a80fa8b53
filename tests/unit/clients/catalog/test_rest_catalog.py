"""The client of a REST catalog: every request ends, and TLS is told as PyIceberg reads it."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.clients.catalog import rest_catalog
from jobs.clients.catalog.catalog import CatalogUnavailableError, client_properties, connect_catalog
from jobs.clients.catalog.rest_catalog import BoundedRestCatalog
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings
from jobs.tables.write.renewed_file_io import RenewedFileIO
from tests.helpers.rest_catalog import RestStandIn
from tests.helpers.tls import Tls, make_tls
from tests.helpers.tls_catalog import silent_catalog


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes connections and never answers; the client waits a moment only."""
    monkeypatch.setattr(rest_catalog, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def rest(uri: str, **properties: str) -> CatalogSettings:
    return CatalogSettings.model_validate({"name": "lake", "properties": {"type": "rest", "uri": uri, **properties}})


@pytest.mark.parametrize("credential", ["", "${env:FRAZIL_T_CREDENTIAL}"])
def test_a_catalog_that_never_answers_is_away(
    silent: str, credential: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where a token is the first thing that is asked for."""
    monkeypatch.setenv("FRAZIL_T_CREDENTIAL", "me:hunter2")
    asked = {"credential": credential, "oauth2-server-uri": f"{silent}/token"} if credential else {}
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": rest(silent, **asked)})
    with pytest.raises(CatalogUnavailableError, match=r"read timeout=0\.3") as told:
        connect_catalog(settings)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("http://127.0.0.1:9/a-secret", "http://127.0.0.1:9: Failed to establish a new connection: Connection refused"),
        ("https://127.0.0.1:9", "https://127.0.0.1:9: Failed to establish a new connection: Connection refused"),
        ("http://catalog.invalid:8181", "http://catalog.invalid:8181: Failed to resolve 'catalog.invalid'"),
        ("http://[::1]:9", "http://[::1]:9: Failed to establish a new connection: "),
    ],
)
def test_a_catalog_that_cannot_be_reached_is_named_in_one_line(uri: str, said: str, tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": rest(uri)})
    with pytest.raises(CatalogUnavailableError) as told:
        connect_catalog(settings)
    assert told.value.message.startswith(f"catalog lake: ConnectionError: {said}")
    assert "secret" not in told.value.message and "retries" not in told.value.message


def test_a_proxy_that_cannot_be_reached_is_named_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://ada:hunter2@127.0.0.1:9")
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": rest("http://catalog.invalid:8181")})
    with pytest.raises(CatalogUnavailableError) as told:
        connect_catalog(settings)
    said = "http://catalog.invalid:8181: Unable to connect to proxy: Failed to establish a new connection: "
    assert told.value.message.startswith(f"catalog lake: ProxyError: {said}")
    assert "hunter2" not in told.value.message


def test_a_connection_waits_for_each_answer_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server that stops answering after it was connected to."""
    monkeypatch.setattr(rest_catalog, "ANSWER_SECONDS", 0.3)
    body = b'{"defaults":{},"overrides":{}}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n" + body
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        made = BoundedRestCatalog("lake", uri=f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(Exception, match=r"timed out|read timeout") as told:
            made.list_namespaces()
        assert not isinstance(told.value, CommitFailedException)


def test_tls_is_told_as_pyiceberg_reads_it() -> None:
    given = rest("https://c", **{"ssl.cabundle": "/ca.pem", "ssl.client.cert": "/me.pem", "scope": "catalog"})
    assert client_properties(given) == {
        "type": "rest",
        "uri": "https://c",
        "scope": "catalog",
        "ssl": {"cabundle": "/ca.pem", "client": {"cert": "/me.pem"}},
    }
    assert "ssl" not in client_properties(rest("https://c"))


@pytest.fixture(scope="module")
def over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tls]]:
    """A server that wants a certificate from whoever asks, too."""
    tls = make_tls(tmp_path_factory.mktemp("tls"))
    with silent_catalog(tls, certificates=True) as uri:
        yield uri, tls


def test_a_catalog_over_tls_with_certificates_on_both_sides(
    over_tls: tuple[str, Tls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment names other authorities, which requests prefers to those of a session."""
    uri, tls = over_tls
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    own = {"ssl.cabundle": str(tls.ca), "ssl.client.cert": str(tls.keystore)}
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": rest(uri, **own)})
    assert connect_catalog(settings).list_namespaces() == [("lake",)]


@pytest.mark.parametrize("given", ["ssl.client.cert", "ssl.cabundle"])
def test_a_certificate_that_is_missing_is_told(over_tls: tuple[str, Tls], tmp_path: Path, given: str) -> None:
    uri, tls = over_tls
    own = {given: str(tls.ca if given == "ssl.cabundle" else tls.keystore)}
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": rest(uri, **own)})
    with pytest.raises(CatalogUnavailableError, match=r"(?i)certificate|ssl|reset|closed"):
        connect_catalog(settings)


def test_keys_that_are_handed_out_with_a_table_are_renewed_with_it(tmp_path: Path) -> None:
    home = Settings.embedded(tmp_path)
    connect_catalog(home).create_namespace("lake")
    made = connect_catalog(home).create_table("lake.payments", Schema(NestedField(1, "id", LongType())))
    with RestStandIn(lambda: connect_catalog(home)) as server:
        client = connect_catalog(home.model_copy(update={"catalog": rest(f"http://127.0.0.1:{server.port}")}))
        assert type(client.load_table("lake.payments").io) is PyArrowFileIO
        numbers = itertools.count(1)
        ends = {"s3.session-token-expires-at-ms": "1"}
        server.config = lambda: {"s3.access-key-id": "k", "s3.session-token": f"token-{next(numbers)}"} | ends
        io = client.load_table("lake.payments").io
        assert isinstance(io, RenewedFileIO)
        assert io.properties["s3.session-token"] == "token-1"
        io.new_input(made.metadata_location)
        assert io.properties["s3.session-token"] == "token-2"
        # Another table of the same name is none of it.
        connect_catalog(home).drop_table("lake.payments")
        connect_catalog(home).create_table("lake.payments", Schema(NestedField(1, "id", LongType())))
        assert not io.renew(refused=True)
        assert io.properties["s3.session-token"] == "token-2"


def test_former_metadata_files_are_left_to_the_server(tmp_path: Path) -> None:
    home = Settings.embedded(tmp_path)
    connect_catalog(home).create_namespace("lake")
    of_one = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    schema = Schema(NestedField(1, "id", LongType()))
    made = connect_catalog(home).create_table("lake.payments", schema, properties=of_one)
    files = Path(made.metadata_location.removeprefix("file://")).parent
    with RestStandIn(lambda: connect_catalog(home)) as server:
        client = connect_catalog(home.model_copy(update={"catalog": rest(f"http://127.0.0.1:{server.port}")}))
        table = client.load_table("lake.payments")
        for number in range(3):
            with table.transaction() as change:
                change.set_properties({"number": str(number)})
    # The stand-in removes none.
    assert len(list(files.glob("*.metadata.json"))) == 4
    assert len(table.metadata.metadata_log) == 1
