"""`frazil open`: the page's address by a setting, by the running `frazil dev`, and where nothing runs."""

from __future__ import annotations

import json
import threading
import webbrowser
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from orchestration.cli.local.dev.services import Claim, ServicesLock, recorded_url
from orchestration.cli.local.open_page import URL_VARIABLE, page_of
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in

PAGE = "/assets/frazil/orders/payments"


class Webserver(BaseHTTPRequestHandler):
    """Answers as Dagster's webserver does to the question who it is."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            json.dumps({"dagster_webserver_version": "1.13"} if self.path == "/server_info" else {}).encode()
        )

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing."""


@pytest.fixture
def webserver() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Webserver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    return deployment_in(tmp_path, "payments")


def frazil(home: Path, *arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), "open", *arguments])
    assert result.exit_code == expect, result.output
    return result


def test_the_address_of_a_dagster_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) == 1)
    url = "https://dagster.example.com/prod/"
    assert frazil(home, "payments", "--url", url, "--print").stdout == f"https://dagster.example.com/prod{PAGE}\n"
    assert json.loads(frazil(home, "payments", "--url", url, "--json").stdout)["url"].endswith(f"/prod{PAGE}")
    assert opened == []
    monkeypatch.setenv(URL_VARIABLE, "http://dagster:3000")
    assert frazil(home, "payments").stderr == ""
    assert opened == [f"http://dagster:3000{PAGE}"]
    assert "No browser" in frazil(home, "payments").stderr


def test_the_address_of_the_running_frazil_dev(home: Path, webserver: str) -> None:
    folder = home / ".frazil" / "dagster"
    claim = ServicesLock(folder)
    claim.acquire()
    assert recorded_url(folder) is None
    claim.record_url(webserver)
    try:
        assert frazil(home, "payments", "--print").stdout == f"{webserver}{PAGE}\n"
        claim.record_url("http://127.0.0.1:1")
        assert "does not answer at http://127.0.0.1:1 (ConnectionError)" in frazil(home, "payments", expect=1).stderr
    finally:
        claim.release()
    assert recorded_url(folder) is None


def test_where_dagster_does_not_run(home: Path) -> None:
    shown = frazil(home, "payments", expect=1).stderr
    assert "Dagster does not run on the deployment in" in shown and "Next: frazil dev; or frazil open payments" in shown
    assert "There is no stream 'paiments'" in frazil(home, "paiments", expect=1).stderr
    (home / ".frazil" / "dagster").mkdir(parents=True)
    left = home / ".frazil" / "dagster" / "services.json"
    left.write_bytes(msgspec.json.encode(Claim(2**22 + 1, 1.0, "http://127.0.0.1:3000")))
    assert "Dagster does not run" in frazil(home, "payments", expect=1).stderr
    left.write_text("damaged")
    assert "Dagster does not run" in frazil(home, "payments", expect=1).stderr


def test_names_are_quoted(home: Path) -> None:
    deployment = Deployment.at(home)
    spec = deployment.stream("payments")
    spec = spec.model_copy(update={"table": spec.table.model_copy(update={"name": "my orders.a/b"})})
    assert page_of("http://h", spec, deployment.settings()) == "http://h/assets/frazil/my%20orders/a%2Fb"
