"""A stream with a broker and a producer of its own, for tests of `frazil dev`; and its living drivers."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer

from jobs.base.errors import FrazilError
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from orchestration.cli.local.dev.dagster_api import DagsterClient
from orchestration.cli.local.dev.services import FILE, Claim
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.integration.pipeline import Pipeline, payment

TICKS = 2
TICK_SECONDS = 10
# Two ticks, a run's start, and a driver's.
SOON = TICKS * TICK_SECONDS + 100
CHECK = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { assetChecksOrError {
  ... on AssetChecks { checks { name executionForLatestMaterialization { status evaluation { success
    metadataEntries { label ... on IntMetadataEntry { intValue } } } } } } } } } }"""
RUNS = """query { runsOrError(filter: {pipelineName: "frazil_control"}) { ... on Runs { results {
  runId status tags { key value } } } } }"""


class SupervisedStream:
    """A deployment with a broker and a payments producer of its own."""

    def __init__(self, home: Path) -> None:
        self.broker: LocalBroker = LocalBroker(home / ".frazil" / "broker", detached=True)
        self.stream: Pipeline = Pipeline(home, self.broker.start(), "watched", lease_ttl="10s")
        # The embedded broker is found by its address file, so that it may come back.
        (home / "frazil.yaml").write_text("spark:\n  driver_memory: 600m\nlease_ttl: 10s\n")
        # Records come all the time, and whatever happens is the same with a third of the batches.
        self.stream.write_spec(trigger={"every": "3s"})
        self.stream.create_topic()
        self._produced: int = 0
        self._enough: threading.Event = threading.Event()
        self._producer: threading.Thread = threading.Thread(target=self._produce, daemon=True)

    def start_producing(self) -> None:
        self._producer.start()

    def stop_producing(self) -> None:
        self._enough.set()
        self._producer.join(60)
        assert not self._producer.is_alive()

    def _produce(self) -> None:
        options = {"bootstrap.servers": self.stream.address, "acks": "all", "enable.idempotence": True, "log_level": 0}
        producer = Producer(options)
        while not self._enough.wait(0.05):
            self._produced += 1
            value = payment(self._produced, "truncated" if self._produced % 50 == 0 else "good")
            producer.produce(self.stream.stream, key=b"k", value=value, partition=self._produced % 2)
            producer.poll(0)
        producer.flush(60)

    def claim(self) -> Claim | None:
        """Who runs the services, and which."""
        path = self.stream.home / ".frazil" / "dagster" / FILE
        noted = path.read_bytes() if path.exists() else b""
        return msgspec.json.decode(noted, type=Claim) if noted else None

    def service(self, name: str) -> int:
        noted = self.claim()
        assert noted is not None
        return noted.services[name].pid

    @property
    def api(self) -> DagsterClient:
        noted = self.claim()
        assert noted is not None
        return DagsterClient(noted.url)

    def up(self, dev: Marked) -> bool:
        """Whether the services of this `frazil dev` answer, both noted; none come any more once it has ended."""
        assert not dev.ended(), dev.finish(5)
        noted = self.claim()
        if (
            noted is None
            or noted.pid != dev.process.pid
            or set(noted.services) != {"code server", "webserver", "daemon"}
        ):
            return False
        try:
            return bool(self.api.ask("query { version }", 5))
        except (OSError, FrazilError):
            return False

    def beat(self) -> Heartbeat | None:
        return read_heartbeat(self.stream.folder().store)

    def wait(self, what: str, condition: Callable[[Heartbeat], bool], seconds: float = SOON) -> Heartbeat:
        def reached() -> bool:
            beat = self.beat()
            return beat is not None and condition(beat)

        wait_for(reached, f"{what}; it is {self.beat()}", seconds)
        beat = self.beat()
        assert beat is not None
        return beat

    def works(self, attempt: int) -> Heartbeat:
        """Wait until this attempt has landed something new; there is no other driver then."""
        beat = self.wait(f"attempt {attempt} to run", lambda beat: beat.attempt == attempt and beat.state == "running")
        landed = beat.work.landed
        beat = self.wait("new rows", lambda beat: beat.attempt == attempt and beat.work.landed > landed)
        assert drivers(self.stream) == [beat.pid]
        return beat

    def ui_says_alive(self, attempt: int) -> bool:
        """Whether the newest evaluation of `driver_alive` in Dagster speaks of this attempt, and well."""
        key = {"path": ["frazil", *self.stream.table_name.split(".")]}
        node = self.api.ask(CHECK, key=key)["assetNodeOrError"]
        for check in node.get("assetChecksOrError", {}).get("checks", ()):
            if check["name"] != "driver_alive":
                continue
            evaluation = (check["executionForLatestMaterialization"] or {}).get("evaluation")
            if evaluation and evaluation["success"]:
                values = {entry["label"]: entry.get("intValue") for entry in evaluation["metadataEntries"]}
                return values.get("attempt") == attempt
        return False

    def control_runs(self) -> list[dict[str, Any]]:
        return self.api.ask(RUNS)["runsOrError"]["results"]


def drivers(stream: Pipeline) -> list[int]:
    """The living driver processes of a stream; another run of this test beside this one has another home."""
    mine = f"--home {stream.home} --stream {stream.stream} "
    return [pid for pid, command in processes() if "jobs.streaming.driver.main" in command and mine in command]


def processes() -> list[tuple[int, str]]:
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,state=,args="], capture_output=True, text=True, check=True)
    found: list[tuple[int, str]] = []
    for line in listed.stdout.splitlines():
        pid, state, command = line.split(None, 2)
        if not state.startswith("Z"):
            found.append((int(pid), command))
    return found
