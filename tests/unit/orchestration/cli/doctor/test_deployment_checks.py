"""Checks of a deployment's services: clocks, a probe of the warehouse, Dagster's storage."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import dagster as dg
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.config.settings.settings import Settings, load_settings
from orchestration.cli.common.dagster_instance import make_instance
from orchestration.cli.local.doctor.deployment_checks import (
    check_dagster,
    clock_finding,
    http_skew,
    probe_files,
    time_sources,
)


class Answers(http.server.BaseHTTPRequestHandler):
    """Names a time that is `ahead` seconds ahead, with an error, as services without a login do."""

    ahead: float | None = 0.0

    def do_HEAD(self) -> None:
        self.send_response_only(403)
        if self.ahead is not None:
            self.send_header("Date", formatdate(time.time() + self.ahead, usegmt=True))
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def clock_server() -> Iterator[tuple[str, type[Answers]]]:
    class Own(Answers):
        pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", Own
        finally:
            server.shutdown()
            thread.join()


def test_the_clock_of_a_service_is_compared(clock_server: tuple[str, type[Answers]]) -> None:
    url, answers = clock_server
    assert http_skew(url) == 0.0
    for ahead in (600.0, -600.0):
        answers.ahead = ahead
        skew = http_skew(url)
        assert skew == pytest.approx(ahead, abs=5)
    answers.ahead = None
    assert http_skew(url) is None
    assert http_skew("http://127.0.0.1:1/") is None


@pytest.mark.parametrize(
    ("skew", "verdict", "words"),
    [
        (0.0, "ok", "agrees with x"),
        (-5.0, "ok", "agrees with x"),
        (6.0, "warning", "6 s behind x"),
        (-6.0, "warning", "6 s ahead of x"),
        (301.0, "wrong", "301 s behind x"),
    ],
)
def test_what_a_skew_means(skew: float, verdict: str, words: str) -> None:
    finding = clock_finding("x", skew)
    assert finding.verdict == verdict
    assert words in finding.sentence


def test_only_addresses_without_a_secret_are_asked_for_the_time(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(
        "catalog: {properties: {type: rest, uri: 'https://c/api', s3.endpoint: 'http://s:1', token: '${env:T}'}}\n"
        "registry: {url: 'https://r'}\n"
        "state: {store: 's3://bucket/f', properties: {s3.endpoint: 'http://s:1'}}\n"
    )
    assert time_sources(load_settings(file, home=tmp_path)) == ["http://s:1", "https://c/api", "https://r"]
    assert time_sources(Settings.embedded(tmp_path)) == []


def test_a_probe_is_written_read_and_deleted(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    finding = probe_files(PyArrowFileIO(), f"file://{warehouse}", settings)
    assert (finding.verdict, list(warehouse.iterdir())) == ("ok", [])
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    finding = probe_files(PyArrowFileIO(), f"file://{in_the_way}", settings)
    assert finding.verdict == "wrong"
    assert "remove file://" in (finding.fix or "")


def test_dagster_s_storage_and_daemon(tmp_path: Path) -> None:
    home = tmp_path / "dagster"
    assert check_dagster(home).verdict == "unchecked"
    assert not home.exists()
    make_instance(home)
    finding = check_dagster(home)
    assert finding.verdict == "warning"
    assert "its daemon has never reported" in finding.sentence
    with dg.DagsterInstance.from_config(str(home)) as instance:
        from dagster._daemon.types import DaemonHeartbeat

        for name in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - 7, name, "one", []))
    finding = check_dagster(home)
    assert finding.verdict == "ok", finding
    (home / "history" / "runs.db").write_bytes(b"no database")
    assert check_dagster(home).verdict == "wrong"
