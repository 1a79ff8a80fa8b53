"""A table in a catalog of its own, and stamped commits of streams, replays and others on it, without any driver."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, KafkaColumns
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append, ReplaceFiles
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision, PartitionCounts
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp, property_key
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from jobs.tables.write.target_writer import TargetWriter

NAME = "lake.orders"
SCHEMA = "id long, amount double, at timestamptz"
COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class LandedTable:
    """A table and what is committed on it; each row has the id `100000 * partition + offset`."""

    def __init__(self, home: Path, kafka: KafkaColumns = KAFKA_COLUMNS, schema: str = SCHEMA) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.settings: Settings = Settings.embedded(home)
        self.catalog: Catalog = connect_catalog(self.settings)
        self.catalog.create_namespace("lake")
        self.catalog.create_table(NAME, kafka.added_to(iceberg_schema(parse_schema(schema))))
        self.newest: dict[str, Stamp] = {}
        self.batches: int = 0

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def rows(self, offsets: list[tuple[int, int]], topic: str = "orders", **values: Any) -> pa.Table:
        """Rows of records, by partition and offset."""
        wanted = rows_arrow_schema(self.table.schema())
        made: dict[str, list[Any]] = {
            "id": [100_000 * p + o for p, o in offsets],
            "amount": [float(o) for _, o in offsets],
            "at": [BEGIN + timedelta(minutes=o) for _, o in offsets],
            "_kafka_topic": [topic] * len(offsets),
            "_kafka_partition": [p for p, _ in offsets],
            "_kafka_offset": [o for _, o in offsets],
            "_kafka_timestamp": [BEGIN + timedelta(minutes=o) for _, o in offsets],
            **values,
        }
        return pa.table(
            {name: made[name] for name in wanted.names if name in made},
            schema=pa.schema([wanted.field(name) for name in wanted.names if name in made]),
        )

    def files(self, rows: pa.Table, name: str = NAME) -> list[DataFile]:
        """Data files of rows, which the table does not have yet."""
        table = self.catalog.load_table(name)
        writer = TargetWriter(table.metadata, table.io, file_prefix=uuid.uuid4().hex)
        for batch in rows.to_batches():
            writer.write(batch)
        return writer.close()

    def land(self, *ranges: tuple[int, int, int], stream: str = "orders", empty: bool = False, **values: Any) -> int:
        """A batch with the records `(partition, start, end)`; returns the snapshot."""
        offsets = [(p, o) for p, start, end in ranges for o in range(start, end)]
        before = self.newest.get(stream)
        start = {TopicPartition("orders", p): a for p, a, _ in ranges}
        position = {**(before.position if before else {}), **{TopicPartition("orders", p): b for p, _, b in ranges}}
        parts = {p: PartitionCounts(at, Counts()) for p, at in start.items()}
        rows = [] if empty else self.files(self.rows(offsets, **values))
        return self.stamp(stream, rows, start={**position, **start}, position=position, parts=parts)

    def replay(self, offsets: list[tuple[int, int]], stream: str = "orders~replay") -> int:
        """A batch of a replay with rows of these records."""
        place = TopicPartition("replay", 0)
        before = self.newest.get(stream)
        number = before.position[place] if before else 0
        parts = {place: PartitionCounts(number, Counts())}
        rows = self.files(self.rows(offsets))
        return self.stamp(stream, rows, start={place: number}, position={place: number + 1}, parts=parts)

    def stamp(self, stream: str, files: list[DataFile], kind: Any = "batch", *, name: str = NAME, **fields: Any) -> int:
        """A commit of files with a stamp, of which only what is given is of interest."""
        table = self.catalog.load_table(name)
        before = self.newest.get(stream) if name == NAME else None
        self.batches += 1
        made = Stamp(stream, kind, self.batches, 1, "config", **fields)
        made = made.committed_at(table.metadata.next_sequence_number(), before)
        text = made.to_json()
        snapshot = commit_once(
            table, Append(files), summary={SUMMARY_KEY: text}, properties={property_key(stream): text}
        )
        if name == NAME:
            self.newest[stream] = made
        return snapshot

    def land_letters(self, name: str, rows: list[dict[str, Any]], stream: str = "orders") -> int:
        """Dead letters of the records `(topic orders, partition 0, offset)`, each given as columns."""
        if not self.catalog.table_exists(name):
            self.catalog.create_table(name, DEAD_LETTER_SCHEMA)
        schema = rows_arrow_schema(self.catalog.load_table(name).schema())
        usual = {
            "stream": stream, "topic": "orders", "partition": 0, "stage": "decode", "error_class": "not_json",
            "first_seen": BEGIN, "timestamp": BEGIN,
        }  # fmt: skip
        made = pa.Table.from_pylist([{**usual, **row} for row in rows], schema=schema)
        start, end = min(row["offset"] for row in rows), max(row["offset"] for row in rows) + 1
        place = TopicPartition("orders", 0)
        parts = {place: PartitionCounts(start, Counts())}
        files = self.files(made, name)
        return self.stamp(stream, files, name=name, start={place: start}, position={place: end}, parts=parts)

    def reset(self, partition: int, to: int, stream: str = "orders") -> int:
        """An operator moves a stream."""
        before = self.newest[stream]
        place = TopicPartition("orders", partition)
        at = before.position[place]
        moved = {**before.position, place: to}
        range_ = {place: OffsetRange(min(at, to), max(at, to))}
        decision = Decision("reset", passed=range_) if to > at else Decision("reset", again=range_)
        return self.stamp(stream, [], "accept", start=moved, position=moved, decision=decision)

    def foreign(self, offsets: list[tuple[int, int]]) -> None:
        """Somebody else appends rows."""
        self.table.append(self.rows(offsets))

    def compact(self) -> int:
        """Compact all files to one."""
        table = self.table
        tasks = list(table.scan().plan_files())
        whole = table.scan().to_arrow()
        return commit_once(
            table, ReplaceFiles([each.file for each in tasks], self.files(whole)), summary={}, properties={}
        )

    def expire(self, *snapshots: int, delete: bool = False) -> None:
        """Snapshots are forgotten; with `delete`, files that no snapshot names any more are deleted, too."""
        table = self.table
        before = (
            {
                each.data_file.file_path
                for one in table.snapshots()
                for m in one.manifests(table.io)
                for each in m.fetch_manifest_entry(table.io, discard_deleted=True)
            }
            if delete
            else set()
        )
        table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()
        if delete:
            table = self.table
            after = {
                each.data_file.file_path
                for one in table.snapshots()
                for m in one.manifests(table.io)
                for each in m.fetch_manifest_entry(table.io, discard_deleted=True)
            }
            for path in before - after:
                Path(path.removeprefix("file://")).unlink()

    def roll_back(self, snapshot: int) -> None:
        """Main is moved to another snapshot."""
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot).commit()

    def ids(self) -> Counter[int]:
        return Counter(self.table.scan().to_arrow()["id"].to_pylist())
