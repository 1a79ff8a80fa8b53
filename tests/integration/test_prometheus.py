"""A real Prometheus with the example's configuration: it finds drivers, asks for their figures, and has the rules."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.base.system.ports import free_ports
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.driver.process.metrics import MetricsServer
from jobs.streaming.supervision.documents.scrape_target import announced
from orchestration.alerts.alarms import ALARMS
from orchestration.cli.local.dev.child_process import Child, end_children
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.full_heartbeat import full_beat

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: prometheus)"),
]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "prometheus"


class Prometheus:
    """A server with the example's configuration, which scrapes each second."""

    def __init__(self, folder: Path, targets: Path) -> None:
        text = (EXAMPLE / "prometheus.yaml").read_text().replace("15s", "1s").replace("30s", "1s")
        assert "/var/lib/frazil/metrics" in text
        (folder / "prometheus.yaml").write_text(text.replace("/var/lib/frazil/metrics", str(targets)))
        shutil.copy(EXAMPLE / "rules.yaml", folder)
        (self._port,) = free_ports(1)
        command = [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self.process: Child = Child("prometheus", command, log=folder / "prometheus.log", env={}, cwd=folder)

    def ask(self, path: str, **parameters: str) -> Any:
        """The answer of its API; None while it does not listen."""
        assert self.process.ending() is None, self.process.last_words()
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def targets(self) -> list[tuple[str, str]]:
        """The driver and the health of each target."""
        found = self.ask("targets") or {"activeTargets": []}
        return [(each["labels"]["driver"], each["health"]) for each in found["activeTargets"]]

    def values(self, query: str) -> list[float]:
        found = self.ask("query", query=query) or {"result": []}
        return [float(each["value"][1]) for each in found["result"]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "frazil.yaml").write_text("metrics: {folder: targets}\n")
    return load_settings(None, home=tmp_path)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    (tmp_path / "targets").mkdir()
    made = Prometheus(tmp_path, tmp_path / "targets")
    try:
        yield made
    finally:
        end_children([made.process])


def test_a_driver_is_found_scraped_and_forgotten(prometheus: Prometheus, settings: Settings, tmp_path: Path) -> None:
    beat = full_beat(tmp_path)
    with MetricsServer(lambda: (beat,)) as server, announced(settings, "payments", server.url):
        wait_for(lambda: prometheus.targets() == [("payments", "up")], "the driver to be found", 60)
        wait_for(lambda: prometheus.values("frazil_records_landed_total") == [90.0], "its figures", 60)
        lag = "sum by (stream) (frazil_consumer_lag_records)"
        assert prometheus.values(lag) == [3.0]
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {alarm.id for alarm in ALARMS if alarm.query}
        firing = 'ALERTS{alertname="table_suspended", alertstate="firing"}'
        wait_for(lambda: prometheus.values(firing) == [1.0], "the alarm of a suspended table", 120)
    wait_for(lambda: prometheus.targets() == [], "the driver to be forgotten", 60)
