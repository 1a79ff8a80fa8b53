"""Stream with real tables in a catalog of SQLite, filled through the project's own commits without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import publish_if_fit
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery import accept
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from tests.helpers.stream_history import FAILED, ROW, TOMBSTONE

SINK, DEAD = "orders.payments", "orders.payments_dead"
TOPIC = "payments"


@dataclass
class RealStream:
    """Deployment with one stream and its two tables."""

    home: Path
    kafka_columns: bool = True
    sink: str = SINK
    totals: dict[str, Counts] = field(default_factory=dict)
    position: dict[TopicPartition, int] = field(default_factory=dict)
    batch: int = 0
    identity: str | None = None
    retired: dict[str, Retired] = field(default_factory=dict)
    gated: bool = False

    def __post_init__(self) -> None:
        self.spec: StreamSpec = self._written()
        self.settings: Settings = Settings.embedded(self.home)
        catalog = self.catalog()
        catalog.create_namespace("orders")
        properties = {"format-version": "2"}
        sink = self.spec.table_schema
        catalog.create_table(SINK, sink, properties=properties)
        catalog.create_table(DEAD, Schema(*DEAD_LETTER_SCHEMA.fields[:4]), properties=properties)
        if self.gated:
            # A branch begins with a claim.
            target = Target(catalog, SINK, "payments", branch=self.spec.branch_of(SINK))
            target.commit(Append(), Stamp("payments", "claim", -1, 1, self.spec.config_hash, start={}, position={}))

    def _written(self) -> StreamSpec:
        file = self.home / "streams" / "payments.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "stream": "payments",
            "source": {"topics": [TOPIC]},
            "decode": {"value": "json", "schema": "id string not null"},
            "table": {"name": self.sink, "kafka_columns": self.kafka_columns},
            "errors": {"dead_letters": {"table": DEAD}},
            "trigger": "available_now",
        }
        if self.gated:
            expected = {"expect_column_values_to_not_be_null": {"column": "id"}}
            document |= {"contract": {"expectations": [expected]}, "publish": {"gate": "contract"}}
        file.write_text(yaml.safe_dump(document))
        return load_stream(file)

    def catalog(self) -> Catalog:
        return connect_catalog(self.settings)

    def table(self, name: str | None = None) -> Table:
        """The sink, or the table of this name."""
        return self.catalog().load_table(name or self.sink)

    def rename(self, name: str) -> None:
        """Give the sink another name, in the catalog and in the stream's file."""
        self.catalog().rename_table(self.sink, name)
        self.totals[name] = self.totals.pop(self.sink)
        self.sink = name
        self.spec = self._written()

    def retire(self, partition: int, topic: str = TOPIC) -> None:
        """Drop a fully read topic; from the next stamp on, stamps do not mention it."""
        stood = self.position.pop(TopicPartition(topic, partition))
        if self.identity:
            self.retired = {**self.retired, topic: Retired(self._identity(topic), 0, {partition: stood})}

    def come_back(self, partition: int, at: int) -> None:
        """Bring the topic back, which is read from this offset on."""
        self.retired = {}
        self.position[TopicPartition(TOPIC, partition)] = at

    def land(self, fates: Sequence[str], partition: int = 0, *, dead_too: bool = True, topic: str = TOPIC) -> None:
        """Commit a batch of one partition, whose records have these fates, on both tables or on the sink alone."""
        at = TopicPartition(topic, partition)
        start = self.position.get(at, 0)
        before = dict(self.position)
        self.position[at] = end = start + len(fates)
        rows = [start + index for index, fate in enumerate(fates) if fate == ROW]
        dead = [start + index for index, fate in enumerate(fates) if fate == FAILED]
        tombstones = sum(fate == TOMBSTONE for fate in fates)
        counts = Counts(len(rows) + len(dead) + tombstones, len(rows), len(dead), tombstones)
        stamp = Stamp(
            "payments",
            "batch",
            self.batch,
            1,
            self.spec.config_hash,
            start={**before, at: start},
            position=dict(self.position),
            rows={self.sink: len(rows), DEAD: len(dead)},
        )
        self.batch += 1
        self._commit(self.sink, stamp, OffsetRange(start, end), at, counts, self.sink_rows(at, rows))
        if dead and dead_too:
            letters = Counts(read=len(dead), dead=len(dead))
            self._commit(DEAD, stamp, OffsetRange(start, end), at, letters, dead_rows(at, dead))

    def replay(self, offset: int, partition: int = 0) -> None:
        """A replay brings back the record of this offset."""
        target = Target(self.catalog(), self.sink, "payments~replay", branch=self.spec.branch_of(self.sink))
        newest = target.read()
        at, number = TopicPartition("replay", 0), newest.batch + 1 if newest else 0
        rows = self.sink_rows(TopicPartition(TOPIC, partition), [offset])
        files = list(_dataframe_to_data_files(target.table.metadata, rows, target.table.io, uuid.uuid4()))
        stamp = Stamp("payments~replay", "batch", number, 1, "c", start={at: number}, position={at: number + 1})
        target.commit(Append(files), replace(stamp, counts=Counts(1, 1)))

    def publish(self, *, fit: bool = True) -> str:
        """Publish, or hold, what has landed on the branch; what became of it."""
        verdict = Verdict(fit, () if fit else ("not fit",), f"contract {fit}")
        judge = lambda interval: verdict  # noqa: E731
        return publish_if_fit(self.spec, self.settings, self.catalog(), "tester", judge, verdict.judged_by).became

    def reset(self, partition: int, to: int) -> None:
        """An operator moves the stream back."""
        at = TopicPartition(TOPIC, partition)
        moved = Decision("reset", again={at: OffsetRange(to, self.position[at])})
        self.position[at] = to
        for name in (DEAD, self.sink):
            target = Target(self.catalog(), name, "payments")
            newest = target.read()
            if newest is None:
                continue
            stamp = replace(newest.decided(moved), kind="accept", note="ada: trying it")
            target.restamp(replace(stamp, start=dict(self.position), position=dict(self.position)))

    def roll_back(self, steps: int, answer: Literal["keep", "reland"]) -> None:
        """Somebody rolls the sink back by some snapshots, and an operator answers."""
        table = self.table()
        before = table.metadata.snapshots[-1 - steps].snapshot_id
        table.manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
        targets = {name: Target(self.catalog(), name, "payments") for name in (self.sink, DEAD)}
        histories = {name: target.history() for name, target in targets.items()}
        for name, stamp in rollback(histories, self.sink, answer, self.spec.config_hash).items():
            targets[name].restamp(accept.signed_answer(stamp, 1, "ada: wrong load"))
        newest = targets[self.sink].newest
        assert newest is not None
        self.position = dict(newest.position)

    def sink_rows(self, at: TopicPartition, offsets: Sequence[int]) -> pa.Table:
        """Rows of the sink as records at these offsets make them."""
        schema = self.spec.table_schema.as_arrow()
        made = {
            "id": [f"p-{at.partition}-{offset}" for offset in offsets],
            "_kafka_topic": [at.topic] * len(offsets),
            "_kafka_partition": [at.partition] * len(offsets),
            "_kafka_offset": list(offsets),
            "_kafka_timestamp": [None] * len(offsets),
        }
        return pa.table({name: made[name] for name in schema.names}, schema=schema)

    def files(self, target: Target, rows: pa.Table) -> list[DataFile]:
        """Data files of rows, which nobody refers to yet."""
        return list(_dataframe_to_data_files(target.table.metadata, rows, target.table.io, uuid.uuid4()))

    def _identity(self, topic: str) -> str:
        return str(self.identity) if topic == TOPIC else f"id-{topic}"

    def _commit(
        self, name: str, stamp: Stamp, range_: OffsetRange, at: TopicPartition, counts: Counts, rows: pa.Table
    ) -> None:
        target = Target(self.catalog(), name, "payments", branch=self.spec.branch_of(name))
        target.read()
        self.totals[name] = self.totals.get(name, Counts()) + counts
        files = self.files(target, rows) if rows.num_rows else []
        parts = {at: PartitionCounts(range_.start, counts)}
        if name == self.sink and self.identity:
            topics = {each.topic: self._identity(each.topic) for each in self.position}
            stamp = replace(stamp, topics={TOPIC: self.identity, **topics}, retired=self.retired)
        target.commit(Append(files), replace(stamp, parts=parts, counts=counts, totals=self.totals[name]))


def dead_rows(at: TopicPartition, offsets: Sequence[int], stream: str = "payments") -> pa.Table:
    """Rows of the dead letters as records at these offsets make them."""
    schema = Schema(*DEAD_LETTER_SCHEMA.fields[:4]).as_arrow()
    count = len(offsets)
    values = [[stream] * count, [at.topic] * count, [at.partition] * count, list(offsets)]
    return pa.table(dict(zip(schema.names, values, strict=True)), schema=schema)
