"""A dead-letter table made by hand, its topic on the real broker, and a process that publishes its letters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from jobs.clients.state_store.local_store import LocalStore
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.error_handling import DeadLetterTopic
from jobs.streaming.dead_letter_publisher.outbox import Outbox
from jobs.streaming.dead_letter_publisher.position import PositionStore
from jobs.streaming.dead_letter_publisher.topic import cluster_of
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from tests.helpers.forked import Forked
from tests.helpers.topics import messages_of

TABLE = "tests.letters_dead"
SEEN = datetime(2026, 11, 1, 10, 0, 0, tzinfo=UTC)
Where = tuple[str, int, int]
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Read:
    """A record of the topic as a consumer sees it."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: tuple[int, int]
    partition: int

    def last(self, name: str) -> str | None:
        """The newest header of a name, as text."""
        value = dict(self.headers)[name]
        return None if value is None else value.decode()

    @property
    def where(self) -> Where:
        """Where the original record stood."""
        topic, partition, offset = (self.last(f"__connect.errors.{name}") for name in ("topic", "partition", "offset"))
        return str(topic), int(partition or -1), int(offset or -1)


@dataclass
class Letters:
    """A dead-letter table of one stream, and where its letters go."""

    folder: Path
    address: str
    stream: str
    topic: dict[str, Any] = field(default_factory=dict)
    epoch: int = 1
    request_timeout: timedelta = timedelta(seconds=15)

    def __post_init__(self) -> None:
        self.topic = {"name": f"{self.stream}.dead", "create": True, "replication_factor": 1} | self.topic
        self.folder.mkdir(parents=True, exist_ok=True)

    def catalog(self) -> SqlCatalog:
        folder = self.folder.absolute()
        return SqlCatalog("frazil", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")

    def table(self) -> Table:
        return ensure_table(
            self.catalog(),
            TABLE,
            DEAD_LETTER_SCHEMA,
            partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA),
            create_table_properties({}),
        )

    def claim(self, epoch: int) -> None:
        """Take the stream over, as far as the dead letters know."""
        self.table()
        stamp = Stamp(self.stream, "claim", -1, epoch, "abc", {}, {})
        Target(self.catalog(), TABLE, self.stream).claim(epoch, lambda newest: stamp)
        self.epoch = epoch

    def add(self, epoch: int, batch: int, offsets: Iterable[int], **changed: Any) -> list[Where]:
        """Letters of one batch; `changed` replaces columns. Returns where their records stood."""
        schema = self.table().schema().as_arrow()
        rows = [self.row(epoch, batch, offset) | changed for offset in offsets]
        self.table().append(pa.Table.from_pylist(rows, schema))
        return [(row["topic"], row["partition"], row["offset"]) for row in rows]

    def row(self, epoch: int, batch: int, offset: int) -> dict[str, Any]:
        """One letter."""
        return {
            "stream": self.stream,
            "topic": "payments",
            "partition": offset % 3,
            "offset": offset,
            "timestamp": SEEN - timedelta(seconds=offset),
            "timestamp_type": "CreateTime",
            "key": f"k{offset}".encode(),
            "value": b"\x00\xff{" + str(offset).encode(),
            "headers": [{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}],
            "stage": "decode_value",
            "error_class": "wrong_type",
            "message": "needs a decimal",
            "field": "$.amount",
            "config_hash": "0123456789ab",
            "batch_id": batch,
            "epoch": epoch,
            "first_seen": SEEN,
        }

    def letter_topic(self) -> DeadLetterTopic:
        return DeadLetterTopic.model_validate(self.topic)

    def outbox(self, **changed: Any) -> Outbox:
        """What publishes, in this process."""
        topic, catalog = self.letter_topic(), self.catalog()
        # The settings' Kafka, where the stream reads; the topic may be elsewhere.
        reads = KafkaSettings(bootstrap_servers=self.address, request_timeout=self.request_timeout)
        kafka = cluster_of(topic, reads)
        notes = PositionStore(LocalStore(self.folder / "state"), topic.name, kafka.bootstrap_servers or "", TABLE)
        load = changed.pop("load", lambda: catalog.load_table(TABLE))
        return Outbox(self.stream, TABLE, topic, kafka, load, notes, self.epoch, **changed)

    def publish(self) -> int:
        """Publish what there is, and let the topic go again."""
        outbox = self.outbox()
        try:
            return outbox.publish()
        finally:
            outbox.close()

    def process(self, steps: str = "") -> Forked:
        """Publish in a process of its own, with the named steps armed."""
        return Forked(Letters.publish, self, env={"FRAZIL_STEPS": steps}, folder=self.folder)

    def read(self, isolation: str = "read_committed", options: dict[str, Any] | None = None) -> list[Read]:
        """All of the topic that a reader with this isolation sees."""
        found: list[Read] = []
        for message in messages_of(self.address, self.topic["name"], {**(options or {}), "isolation.level": isolation}):
            headers: Any = message.headers() or []
            found.append(Read(message.key(), message.value(), headers, message.timestamp(), message.partition() or 0))
        return found

    def seen(self, **reading: Any) -> list[Where]:
        """Where the records of the dead letters in the topic stood, in the topic's order if it has one partition."""
        return [each.where for each in self.read(**reading)]
