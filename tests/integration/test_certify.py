"""`frazil certify` as a user runs it: a short one that passes, one that must not, and one that is interrupted."""

from __future__ import annotations

import json
import os
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

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]


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
        output, _ = process.communicate(timeout=600)
        assert output, self.said()
        return process.returncode, json.loads(output)

    def said(self) -> str:
        return self.errors.read_text()

    def topics(self) -> set[str]:
        topics = AdminClient({"bootstrap.servers": self.broker}).list_topics(timeout=10).topics
        return {name for name in topics if name.startswith("frazil_certify_")}

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
        made.process.wait(60)


def test_a_short_certificate(certifying: Certifying) -> None:
    before = certifying.topics()
    steps = (
        "after_tasks",
        "before_schema_commit",
        "after_schema_commit",
        "before_commit",
        "after_recovery_commit",
    )
    status, facts = certifying.run("--steps", ",".join(steps), "--runs", "1", "--seed", "11", "--records", "300")
    assert status == 0, certifying.said()
    assert facts["passed"] is True
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(steps, (1, True))
    assert facts["kills"] == 5
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    assert min(records["landed"], records["dead"], records["tombstones"]) > 0
    assert records["added_values"] > 0, "of the fields that turned up meanwhile"
    by_step = {scenario["step"]: scenario for scenario in facts["trials"]}
    assert by_step["after_tasks"]["replayed"] > 0, "what the tasks had read was read again"
    assert not by_step["after_tasks"]["from_record"]
    noted = by_step["before_commit"]
    assert noted["from_record"]
    assert noted["replayed"] == 0, "what was noted was committed, and not read again"
    assert 0 < facts["recovery_seconds"]["median"] <= facts["recovery_seconds"]["worst"] < 120
    reports = sorted(path.name for path in (certifying.home / ".frazil" / "certificates").iterdir())
    assert [name.rpartition(".")[2] for name in reports] == ["json", "md"]
    assert "trial 1 of 5" in certifying.said()
    wait_for(lambda: certifying.topics() == before, "the topic's end")
    certifying.assert_nothing_left()


def test_a_routed_stream_and_a_gated_one(certifying: Certifying) -> None:
    """One is killed between the commits of two of its tables; of the other the publisher, and main has all of it."""
    before = certifying.topics()
    steps = ("after_table_commit", "publish_after_commit", "publish_after_hold")
    status, facts = certifying.run("--steps", ",".join(steps), "--runs", "1", "--seed", "15", "--records", "300")
    assert status == 0, certifying.said()
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(steps, (1, True))
    between = next(each for each in facts["trials"] if each["step"] == "after_table_commit")
    assert (between["shape"], between["from_record"]) == ("routed", True)
    assert {each["shape"] for each in facts["trials"] if each is not between} == {"gated"}
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    assert min(records["landed"], records["dead"]) > 0
    assert facts["audit"].count("complete") == 2, "of both streams"
    wait_for(lambda: certifying.topics() == before, "the topics' end")
    certifying.assert_nothing_left()


def test_a_stream_whose_values_name_tables(certifying: Certifying) -> None:
    """Its drivers die before and after tables are made, while others are there; all that land, land in their own."""
    steps = ("before_new_tables", "after_new_tables")
    status, facts = certifying.run("--steps", "named_tables", "--runs", "1", "--seed", "16", "--records", "200")
    assert status == 0, certifying.said()
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(steps, (1, True))
    assert {each["shape"] for each in facts["trials"]} == {"named"}
    assert facts["recovery_seconds"]["measured"] == 2
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    certifying.assert_nothing_left()


def test_a_stream_with_a_mirror(certifying: Certifying) -> None:
    """What merges beside the driver dies when only the catalog is left to be asked; main never shows half a merge."""
    step = "mirror_before_publish"
    status, facts = certifying.run("--steps", step, "--runs", "1", "--seed", "18", "--records", "200")
    assert status == 0, certifying.said()
    assert facts["problems"] == []
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == {step: (1, True)}
    assert {each["shape"] for each in facts["trials"]} == {"mirrored"}
    # A claim and what it published, of the merge before the kill and the one behind it at the least.
    assert facts["mirror_snapshots"] >= 4
    assert facts["recovery_seconds"]["measured"] == 1
    records = facts["records"]
    assert records["produced"] == records["landed"] + records["dead"] + records["tombstones"]
    assert min(records["landed"], records["dead"]) > 0
    certifying.assert_nothing_left()


def test_keepers_die_where_they_would_start_a_driver(certifying: Certifying) -> None:
    # The other two steps, before a keeper's launch, are killed at with small drivers.
    steps = ("keeper_after_launch", "kept")
    status, facts = certifying.run("--steps", ",".join(steps), "--runs", "1", "--seed", "14", "--records", "200")
    assert status == 0, certifying.said()
    assert {row["step"]: (row["kills"], row["passed"]) for row in facts["steps"]} == dict.fromkeys(steps, (1, True))
    assert facts["recovery_seconds"]["measured"] == 2
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
        status, facts = certifying.run("--steps", "before_commit", "--runs", "1", "--seed", "12", "--records", "200")
    finally:
        enough.set()
        doubling.join(30)
    assert doubled, "the test itself did nothing"
    assert status == 1
    assert facts["passed"] is False
    assert any("1 records more than once in the table: partition" in problem for problem in facts["problems"])
    said = certifying.said()
    assert f"Left as it is: topic {doubled[0]}, namespace {doubled[0]}" in said
    assert "frazil certify --seed 12 --steps before_commit" in said
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
    before = certifying.topics()
    assert before
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 130, certifying.said()
    assert time.monotonic() - began < 40
    wait_for(lambda: len(certifying.topics()) < len(before), "the topic's end")
    certifying.assert_nothing_left()
