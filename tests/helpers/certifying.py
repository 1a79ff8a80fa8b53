"""A deployment in which tests run `frazil certify` as a user does: in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from tests.helpers.shared_servers import SPARK_CONF

ROOT = Path(__file__).resolve().parents[2]
# For one run: each kill is the start of another driver, and a machine with other work is several times slower.
RUN_SECONDS = 1800


class Certifying:
    """`frazil certify` in a deployment of its own, as a process of its own."""

    def __init__(self, home: Path, broker: str) -> None:
        self.home: Path = home
        self.broker: str = broker
        settings = {
            "kafka": {"bootstrap_servers": broker},
            "spark": {"master": "local[2]", "driver_memory": "600m", "conf": SPARK_CONF},
        }
        (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.errors: Path = home / "stderr.txt"
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> subprocess.Popen[str]:
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "orchestration.cli.main",
                    "--home",
                    str(self.home),
                    "certify",
                    "--json",
                    *options,
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self.process

    def run(self, *options: str) -> tuple[int, dict[str, Any]]:
        process = self.start(*options)
        output, _ = process.communicate(timeout=RUN_SECONDS)
        assert output, self.said()
        return process.returncode, json.loads(output)

    def said(self) -> str:
        return self.errors.read_text()

    def topics(self) -> set[str]:
        """The topics of this certificate; others may run on the same broker."""
        begun = re.search(r"^certificate (\w+):", self.said(), re.MULTILINE)
        topics = AdminClient({"bootstrap.servers": self.broker}).list_topics(timeout=60).topics
        return {name for name in topics if begun and name.startswith(f"frazil_certify_{begun[1]}")}

    def namespaces(self) -> list[str]:
        with connect_catalog(load_settings(None, home=self.home)) as catalog:
            return [".".join(name) for name in catalog.list_namespaces()]

    def processes(self) -> list[str]:
        """Processes with this deployment's folder in their command lines, such as drivers and their JVMs."""
        found: list[str] = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.home) in line:
                found.append(line)
        return found

    def folders(self) -> list[Path]:
        state = self.home / ".frazil" / "state" / "certify"
        return sorted(state.iterdir()) if state.is_dir() else []

    def assert_nothing_left(self) -> None:
        assert self.processes() == []
        assert self.namespaces() == []
        assert self.folders() == []
        assert list((self.home / ".frazil").rglob("*.parquet")) == []


@pytest.fixture
def certifying(broker: str, tmp_path: Path) -> Iterator[Certifying]:
    made = Certifying(tmp_path, broker)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.send_signal(signal.SIGTERM)
        made.process.wait(300)
