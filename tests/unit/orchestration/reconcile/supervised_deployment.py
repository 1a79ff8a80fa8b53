"""A deployment whose drivers only beat, and the sensor over it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import dagster as dg
import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock
from jobs.base.system.processes import start_time
from jobs.clients.kafka.metadata import KafkaLog, LogEnds
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.source import Source
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from orchestration.definitions import build_definitions
from orchestration.reconcile.cursor import SensorCursor
from orchestration.sensors.reconcile import ReconcileTick, run_reconcile_tick
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import STREAM, connections
from tests.unit.orchestration.reconcile.sample_states import NOW, stand_in

# What no driver says, and nobody can tell a time of.
NONSENSE = Work(unanswered_since=-1e18)


class World:
    """A deployment in a folder.

    Attributes:
        memory: The supervisor's, between ticks that are run by `tick`.
        catalog, kafka: What a tick connects with.
    """

    def __init__(self, home: Path) -> None:
        self.deployment: Deployment = Deployment.at(home)
        self.deployment.streams_folder.mkdir(parents=True)
        self.memory: SensorCursor = SensorCursor.from_cursor(None)
        # No broker is meant to be there, so nobody need be asked for one.
        self.memory.away_until = 2**40
        resources = connections(self.deployment)
        self.catalog: Callable[[], Catalog] = resources["catalog"].quick
        self.kafka: Callable[[], KafkaLog] = resources["kafka"].quick

    @property
    def settings(self) -> Settings:
        return self.deployment.settings()

    def file(self, stream: str) -> Path:
        return self.deployment.streams_folder / f"{stream}.yaml"

    def folder(self, stream: str) -> Path:
        return stream_folder(self.settings, stream).root

    def write(self, stream: str, more: str = "") -> None:
        """Write a stream's file."""
        self.file(stream).write_text(STREAM.format(stream=stream, topic=f"{stream}.v1") + more)

    def generation(self, stream: str) -> str:
        return generation(self.deployment.stream(stream), self.settings)

    def drive(self, stream: str, **changes: Any) -> Heartbeat:
        """Let this process stand in for the stream's driver."""
        fields: dict[str, Any] = {
            "pid": os.getpid(),
            "now": time.time(),
            "spec_text": self.file(stream).read_text(),
            "file": str(self.file(stream)),
        }
        given = changes.pop("generation", None) or self.generation(stream)
        return stand_in(self.folder(stream), stream, given, **fields | changes)

    def tick(self, now: float | None = None, clock: float | None = None) -> ReconcileTick:
        """One tick, with no run known to Dagster."""
        now = time.time() if now is None else now
        clock = boot_clock() if clock is None else clock
        return run_reconcile_tick(
            self.deployment, self.catalog, self.kafka, self.memory, {}, lambda streams: {}, now, clock
        )


class WaitingTopics:
    """Stands in for Kafka, where so many records wait in each topic, all of them in one partition.

    Args:
        world: Whose ticks ask it.

    Attributes:
        records: How many; None while it does not answer.
        asked: How often somebody connected.
    """

    def __init__(self, world: World, records: int = 0) -> None:
        self.records: int | None = records
        self.asked: int = 0
        world.memory.away_until = 0
        world.kafka = self._connected

    def _connected(self) -> KafkaLog:
        self.asked += 1
        if self.records is None:
            raise FrazilError("Kafka does not answer.")
        return cast("KafkaLog", self)

    def topics(self, source: Source) -> dict[str, list[int]]:
        return {topic: [0] for topic in source.topics or ()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[TopicPartition]) -> LogEnds:
        ends = dict.fromkeys(partitions, self.records or 0)
        return LogEnds(ends, ends, {})


class Sensor:
    """The sensor of a deployment, with the cursor that the daemon would keep."""

    def __init__(self, world: World, instance: dg.DagsterInstance) -> None:
        self.definitions: dg.Definitions = build_definitions(world.deployment)
        self.resources: dict[str, object] = connections(world.deployment)
        self.instance: dg.DagsterInstance = instance
        self.cursor: str | None = msgspec.json.encode(world.memory).decode()

    def tick(self) -> Any:
        sensor = self.definitions.resolve_sensor_def("frazil_reconcile")
        with dg.build_sensor_context(
            self.instance, self.cursor, definitions=self.definitions, resources=self.resources
        ) as context:
            result = sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result


def dead_process() -> dict[str, Any]:
    """The pid and start time of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        return {"pid": process.pid, "started": str(start_time(process.pid))}
    finally:
        process.communicate()


def events(tick: ReconcileTick | dg.SensorResult, kind: type) -> list[Any]:
    """The tick's events of one kind."""
    found = tick.events if isinstance(tick, ReconcileTick) else tick.asset_events
    return [event for event in found or [] if isinstance(event, kind)]


def told(tick: ReconcileTick | dg.SensorResult, key: dg.AssetKey) -> list[dg.AssetMaterialization]:
    """The materializations of one asset."""
    return [event for event in events(tick, dg.AssetMaterialization) if event.asset_key == key]


def values(event: Any) -> dict[str, Any]:
    """An event's metadata as plain values."""
    return {name: value.value for name, value in event.metadata.items()}


def work(lag: int = 0, **changes: Any) -> Work:
    """What a driver of `orders.v1` has done; with what is given changed."""
    fields: dict[str, Any] = {
        "batch": 7,
        "batches": 8,
        "read": 1000,
        "landed": 990,
        "dead": 10,
        "last_commit_seconds": 0.25,
        "last_batch_seconds": 1.5,
        "position": {"orders.v1": {"0": 600, "1": 400}},
        "lag": {"orders.v1": {"0": lag, "1": 0}},
        "lag_at": NOW,
        "valid_through_ms": int(NOW * 1000) - 5000,
        "reasons": {"wrong_type": 10},
    }
    return Work(**fields | changes)


def make_table(world: World, totals: Counts, stream: str = "orders") -> int:
    """The stream's table with one snapshot and a stamp; returns the snapshot's id."""
    catalog = load_catalog("frazil", **world.deployment.prepared_settings().catalog.revealed())
    catalog.create_namespace_if_not_exists("orders")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table_if_not_exists(f"orders.{stream}", rows.schema)
    stamp = Stamp(stream, "batch", 0, 1, "c", {}, {}, totals=totals)
    with table.transaction() as change:
        change.set_properties({property_key(stream): stamp.to_json()})
    table.append(rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id
