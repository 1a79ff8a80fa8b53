"""`frazil connect-api` as a command: what it refuses, where it listens, how it ends."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.base.system.ports import HOST
from orchestration.cli.main import main
from tests.helpers.served_connectors import ask
from tests.unit.orchestration.deployments import deployment_in

ROOT = Path(__file__).resolve().parents[4]
TOKEN = "correct-horse-battery-staple"


def frazil(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), "connect-api", *words])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return deployment_in(tmp_path, "payments")


@contextmanager
def served(home: Path, *words: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command in a process of its own, and where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "connect-api", "--port", "0", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"is at (https?://\S+);", line)
        assert found, line + process.stdout.read()
        yield found[1], process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_it_serves_until_it_is_ended(home: Path) -> None:
    with served(home) as (url, process):
        assert url.startswith(f"http://{HOST}:")
        assert ask(url, "GET", "/connectors").document == ["payments"]
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 143, output
        assert "Traceback" not in output
        assert TOKEN not in output


def test_every_address_is_served_to_who_has_the_token(home: Path) -> None:
    with served(home, "--host", "localhost", "--token-env", "CONNECT_TOKEN", CONNECT_TOKEN=TOKEN) as (url, process):
        assert ask(url, "GET", "/connectors").status == 401
        assert ask(url, "GET", "/connectors", Authorization=f"Bearer {TOKEN}").document == ["payments"]
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 130, output
        assert TOKEN not in output


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "connect.internal"])
def test_another_address_needs_a_token(home: Path, host: str) -> None:
    refused = frazil(home, "--host", host)
    assert refused.exit_code == 1
    assert f"Every client that reaches {host} could stop the streams" in refused.output
    assert "--token-env" in refused.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--token-env", "FRAZIL_NOT_SET"), "FRAZIL_NOT_SET is not set"),
        (("--token-env", "SHORT"), "fewer than 16 characters"),
        (("--token-env", f"${TOKEN}"), "name the variable, not the token"),
        (("--token-env", "SHORT", "--token-file", "/run/token"), "The token is named twice"),
        (("--token-file", "/nowhere/token"), "/nowhere/token cannot be read"),
        (("--tls-certificate", __file__), "belong together"),
        (("--host", "host.invalid", "--token-env", "LONG"), "cannot be listened on"),
    ],
)
def test_what_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str) -> None:
    monkeypatch.setenv("SHORT", "only-a-few")
    monkeypatch.setenv("LONG", TOKEN)
    refused = frazil(home, *words)
    assert refused.exit_code == 1, refused.output
    assert message in refused.output.replace("\n", " ")
    assert "only-a-few" not in refused.output
    assert TOKEN not in refused.output.replace(f"${TOKEN}", "")


def test_without_the_extra_it_names_the_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "uvicorn" else find(name, *more)
    )
    refused = frazil(home)
    assert refused.exit_code == 1
    assert "The web server is not installed: uvicorn." in refused.output
    assert "pip install 'frazil[ui]'" in refused.output


def test_a_port_that_is_taken_is_named(home: Path) -> None:
    with served(home) as (url, _):
        port = url.rpartition(":")[2]
        refused = frazil(home, "--port", port)
    assert refused.exit_code == 1
    assert f"{HOST}:{port} cannot be listened on" in refused.output
