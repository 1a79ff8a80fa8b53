"""`frazil certify` as a user runs it: one that passes, with every shape of stream, one that must not, and one that is
interrupted.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from jobs.catalog import connect_catalog
from jobs.spec.settings import load_settings
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import ROOT, SPARK_CONF

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2100)]

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
        """What runs with this deployment's folder in its command line; drivers and their JVMs have it."""
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


def test_a_certificate_of_every_shape(certifying: Certifying) -> None:
    """Drivers die within a batch, between two tables, and with new tables made; a publisher and a merge die, too."""
    shapes = {
        "after_tasks": "plain",
        "after_schema_commit": "plain",
        "before_commit": "plain",
        "after_recovery_commit": "plain",
        "kept": "plain",
        "after_table_commit": "routed",
        "publish_after_hold": "gated",
        "after_new_tables": "named",
        "mirror_before_publish": "mirrored",
    }
    status, facts = certifying.run("--steps", ",".join(shapes), "--runs", "1", "--seed", "11", "--records", "200")
    assert status == 0, certifying.said()
    assert facts["passed"] is True
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(shapes, (1, True))
    assert facts["kills"] == len(shapes)
    by_step = {trial["step"]: trial for trial in facts["trials"]}
    assert {step: trial["shape"] for step, trial in by_step.items()} == shapes
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    assert min(records["landed"], records["dead"], records["tombstones"]) > 0
    assert records["added_values"] > 0, "of the fields that turned up meanwhile"
    assert by_step["after_tasks"]["replayed"] > 0, "what the tasks had read was read again"
    assert not by_step["after_tasks"]["from_record"]
    noted = by_step["before_commit"]
    assert noted["from_record"]
    assert noted["replayed"] == 0, "what was noted was committed, and not read again"
    assert by_step["after_table_commit"]["from_record"]
    # A claim and what it published, of the merge before the kill and the one behind it at the least.
    assert facts["mirror_snapshots"] >= 4
    assert 0 < facts["recovery_seconds"]["median"] <= facts["recovery_seconds"]["worst"] < 360
    assert facts["audit"].count("complete") == len(set(shapes.values())), "of each stream"
    reports = sorted(path.name for path in (certifying.home / ".frazil" / "certificates").iterdir())
    assert [name.rpartition(".")[2] for name in reports] == ["json", "md"]
    assert f"trial 1 of {len(shapes)}" in certifying.said()
    wait_for(lambda: not certifying.topics(), "the topics' end")
    certifying.assert_nothing_left()


def test_a_doubled_row_fails_the_certificate(certifying: Certifying) -> None:
    enough = threading.Event()
    doubled: list[str] = []

    def double() -> None:
        """Append a row that is there already, as soon as there is one."""
        while not enough.wait(0.1):
            with connect_catalog(load_settings(None, home=certifying.home)) as catalog:
                for (namespace,) in catalog.list_namespaces():
                    try:
                        table = catalog.load_table(f"{namespace}.payments")
                        rows = table.scan(limit=1).to_arrow()
                        if rows.num_rows:
                            table.append(rows)
                            doubled.append(namespace)
                            return
                    except (NoSuchTableError, CommitFailedException):
                        continue

    doubling = threading.Thread(target=double)
    doubling.start()
    try:
        # A driver that dies there has started no Spark: the one that ends the certificate is enough.
        status, facts = certifying.run("--steps", "before_lease", "--runs", "1", "--seed", "12", "--records", "200")
    finally:
        enough.set()
        doubling.join(30)
    assert doubled, "the test itself did nothing"
    assert status == 1
    assert facts["passed"] is False
    assert any("1 records more than once in the table: partition" in problem for problem in facts["problems"])
    said = certifying.said()
    assert f"Left as it is: topic {doubled[0]}, namespace {doubled[0]}" in said
    assert "frazil certify --seed 12 --steps before_lease" in said
    # What failed can be looked at; only the processes are gone.
    assert certifying.processes() == []
    assert doubled[0] in certifying.topics()
    assert doubled[0] in certifying.namespaces()
    assert len(certifying.folders()) == 1


def test_an_interrupt_leaves_nothing(certifying: Certifying) -> None:
    process = certifying.start("--steps", "after_tasks", "--seed", "13")
    drivers = certifying.home / ".frazil" / "state" / "certify"

    def driver_runs() -> bool:
        assert process.poll() is None, certifying.said()
        return any(drivers.glob("*/state/streams/certify/heartbeat.json"))

    wait_for(driver_runs, "a driver")
    assert certifying.topics()
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=300)
    assert process.returncode == 130, certifying.said()
    assert time.monotonic() - began < 300
    wait_for(lambda: not certifying.topics(), "the topics' end")
    certifying.assert_nothing_left()
