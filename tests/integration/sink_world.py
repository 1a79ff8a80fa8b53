"""Iceberg sink of Kafka Connect and the stream that takes over from it: one topic, one table, one control topic."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.versus.sink_config import SinkConfig, sink_properties, worker_properties
from jobs.clients.install.artifacts import resolve_jars
from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, Progress, decode_event
from jobs.migration.takeover.sink import Sink, sink_of
from jobs.migration.takeover.sink_kafka import SinkKafka
from jobs.migration.takeover.takeover_plan import TakeoverRequest
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.connect_worker import LOG4J2, ConnectWorker
from tests.helpers.topics import create_topic, messages_of, read_topic
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, Pipeline

# A killed worker stays a member of its groups for 6 s, and its transactions stay open for 5 s.
QUICK_DEATH = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1500"}
QUICK_ABORT = {
    "iceberg.kafka.transaction.timeout.ms": "5000",
    "iceberg.kafka.session.timeout.ms": "6000",
    "iceberg.kafka.heartbeat.interval.ms": "1500",
}

# The coordinator logs whether all tasks have answered a commit, or it commits without the late ones.
COMMITS_LOGGED = f"""\
{LOG4J2}logger.commits.name = org.apache.iceberg.connect.channel.CommitState
logger.commits.level = INFO
"""
_COMMIT_DECISION = re.compile(r"Commit timeout reached|ready, received responses for all")


@dataclass
class SinkWorld:
    """A sink and a stream on one table.

    Attributes:
        commit_ms: `iceberg.control.commit.interval-ms`.
        worker_settings: Settings that replace those of the worker.
        sink_settings: Settings that replace those of the connector.
    """

    pipeline: Pipeline
    commit_ms: int = 1_500
    worker_settings: dict[str, str] = field(default_factory=dict)
    sink_settings: dict[str, str] = field(default_factory=dict)
    worker: ConnectWorker | None = None

    @staticmethod
    def make(home: Path, broker: str, stream: str, **options: Any) -> SinkWorld:
        """Create topics and tables; the worker is not started."""
        world = SinkWorld(Pipeline(home, broker, stream), **options)
        world.pipeline.create_topic()
        ensure_tables(world.pipeline.spec(), world.pipeline.catalog())
        create_topic(broker, world.control_topic, 1)
        # If two tasks turned it on at once, one of them could fail. The file keeps the mode.
        with contextlib.closing(sqlite3.connect(world.database)) as catalog:
            catalog.execute("PRAGMA journal_mode=WAL")
        return world

    @property
    def database(self) -> Path:
        return self.pipeline.home / ".frazil" / "catalog.db"

    @property
    def connector(self) -> str:
        return f"sink-{self.pipeline.stream}"

    @property
    def control_topic(self) -> str:
        return f"control-{self.pipeline.stream}"

    @property
    def sink(self) -> Sink:
        return sink_of(self.connector, "apache", group=None, control_topic=self.control_topic)

    def request(self, **options: Any) -> TakeoverRequest:
        return TakeoverRequest(self.sink, **options)

    def kafka(self) -> SinkKafka:
        return SinkKafka(self.pipeline.settings().kafka)

    def start(self) -> ConnectWorker:
        """Start a worker with the sink, and wait until its tasks run."""
        sink = SinkConfig(self.pipeline.stream, tasks=2, commit_ms=self.commit_ms)
        properties = sink_properties(sink, self.control_topic, self.pipeline.settings().catalog)
        overrides = {"iceberg.tables": self.pipeline.table_name, **QUICK_ABORT, **self.sink_settings}
        self.worker = ConnectWorker(
            self.pipeline.home / "connect",
            self.pipeline.address,
            resolve_jars("connect"),
            settings={**worker_properties(sink), **QUICK_DEATH, **self.worker_settings},
            connectors={self.connector: properties | overrides},
            log4j2=COMMITS_LOGGED,
        )
        self.worker.prepare()
        self.worker.start()
        self.worker.wait_until_running()
        return self.worker

    def kill(self) -> None:
        """End the worker with SIGKILL."""
        assert self.worker is not None
        self.worker.kill()

    def produce(self, count: int, partition: int | None = None) -> None:
        self.pipeline.produce({GOOD: count}, partition=partition)

    def produce_until(self, condition: Callable[[], object], awaited: str, *partitions: int) -> None:
        """Produce one record to each partition again and again, which wakes the tasks, until a condition holds."""

        def wake_and_check() -> object:
            for partition in partitions:
                self.produce(1, partition=partition)
            return condition()

        wait_for(wake_and_check, awaited)

    def events(self) -> list[ControlEvent]:
        """Decided events on the control topic."""
        messages = messages_of(self.pipeline.address, self.control_topic, {"isolation.level": "read_committed"})
        return [
            decode_event(bytes(message.value() or b""), message.partition() or 0, message.offset() or 0)
            for message in messages
        ]

    def announced_files(self) -> list[str]:
        """Paths of all files that workers have announced."""
        payloads = [event.payload for event in self.events()]
        announcements = [payload for payload in payloads if isinstance(payload, Announcement)]
        return [file["file_path"] for announcement in announcements for file in announcement.data_files]

    def announced_offsets(self) -> dict[TopicPartition, int]:
        """Next offsets by the workers' answers."""
        offsets: dict[TopicPartition, int] = {}
        for event in self.events():
            if isinstance(event.payload, Progress):
                offsets.update(event.payload.offsets)
        return offsets

    def produced(self) -> int:
        """Records in the topic."""
        return len(read_topic(self.pipeline.address, self.pipeline.stream))

    def rows(self) -> int:
        """Rows in the table."""
        return sum(self.pipeline.landed().values())

    def wait_until_announced(self, seconds: float = 60) -> None:
        """Wait until the workers have answered that they have read everything; it may not be committed."""
        total = self.produced()
        wait_for(lambda: sum(self.announced_offsets().values()) == total, "the sink's announcement", seconds)

    def wait_until_committed(self, seconds: float = 60) -> None:
        """Wait until the table has every record of the topic, once."""
        total = self.produced()
        wait_for(lambda: self.rows() == total, "the sink's commit", seconds)

    def metadata_files(self) -> set[Path]:
        """Metadata files of all tables; the sink writes one before it asks the catalog to commit it."""
        return set((self.pipeline.home / ".frazil" / "warehouse").rglob("*.metadata.json"))

    def committed_without_late_tasks(self) -> bool:
        """Whether the newest commit that the coordinator began is a partial one."""
        assert self.worker is not None
        decisions = _COMMIT_DECISION.findall(self.worker.log.read_text(errors="replace"))
        return bool(decisions) and decisions[-1] == "Commit timeout reached"

    def coordinator(self) -> dict[TopicPartition, int]:
        """Offsets of the control topic that the sink's coordinator has committed."""
        return self.kafka().committed(self.sink.coordinator_group, [TopicPartition(self.control_topic, 0)])

    @contextlib.contextmanager
    def catalog_held(self) -> Iterator[None]:
        """Lock the catalog for the length of the block: other commits wait for it, half a minute at most."""
        with contextlib.closing(sqlite3.connect(self.database, isolation_level=None, timeout=30)) as catalog:
            catalog.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                catalog.execute("ROLLBACK")

    def assert_joined(self) -> None:
        """Assert that the table has every record of the topic once, whether the sink or the stream landed it."""
        self.pipeline.assert_each_once()
