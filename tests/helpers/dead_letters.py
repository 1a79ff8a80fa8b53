"""A stream with dead letters in a temporary folder: real tables in a SQLite catalog, no Kafka and no JVM."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog, quick_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.request import MAX_LETTERS, ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import dry_run, replay
from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.forked import Forked, frazil

SPEC = """\
stream: payments
source: {topics: [payments.v1]}
decode:
  value: json
  schema: id string not null, amount decimal(12,2)
  unknown_fields: fail
%stable: {name: orders.payments, kafka_columns: %s}
errors: {replay: {park_after: 2}}
"""
GOOD, BROKEN, UNKNOWN = "good", "broken", "unknown"
SEEN = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


def value_of(kind: str, number: int) -> bytes:
    document: dict[str, Any] = {"id": f"p-{number}", "amount": number}
    if kind == UNKNOWN:
        document["colour"] = "red"
    text = json.dumps(document)
    return (text[:10] if kind == BROKEN else text).encode()


@dataclass
class DeadLetterWorld:
    """One stream, its tables and its state; its `kafka_columns` on, off, or as YAML,
    and lines of `decode`."""

    home: Path
    kafka_columns: bool | str = True
    offsets: int = 0
    decode: str = ""
    catalogs: list[Catalog] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "streams").mkdir(parents=True, exist_ok=True)
        self.spec_file.write_text(SPEC % (self.decode, str(self.kafka_columns).lower()))
        (self.home / ".frazil").mkdir(exist_ok=True)
        self.catalog: Catalog = self.connect()
        ensure_tables(self.spec, self.catalog)

    @property
    def spec_file(self) -> Path:
        return self.home / "streams" / "payments.yaml"

    @property
    def spec(self) -> StreamSpec:
        return load_stream(self.spec_file)

    @property
    def settings(self) -> Settings:
        return load_settings(None, home=self.home)

    @property
    def given(self) -> tuple[StreamSpec, Settings, Catalog]:
        """The first arguments of replays and decisions."""
        return self.spec, self.settings, self.catalog

    @property
    def folder(self) -> Path:
        return self.settings.state / "streams" / "payments" / "replay"

    def connect(self) -> Catalog:
        made = connect_catalog(self.settings)
        self.catalogs.append(made)
        return made

    def quick(self) -> Catalog:
        """A connection as sensors open it."""
        return quick_catalog(self.settings)

    def close(self) -> None:
        for catalog in self.catalogs:
            catalog.close()

    def sink(self) -> Table:
        return self.catalog.load_table("orders.payments")

    def dead(self) -> Table:
        return self.catalog.load_table("orders.payments_dead")

    def add(self, kinds: Sequence[str], *, seen: datetime = SEEN, reason: str = "", **columns: Any) -> list[int]:
        """Letters of records with consecutive offsets, as a driver writes them; returns the offsets."""
        first, self.offsets = self.offsets, self.offsets + len(kinds)
        offsets = list(range(first, self.offsets))
        count = len(kinds)
        records = pa.record_batch(
            {
                "key": pa.array([b"k"] * count, pa.binary()),
                "value": pa.array([value_of(k, o) for k, o in zip(kinds, offsets, strict=True)], pa.binary()),
                "topic": pa.array(["payments.v1"] * count),
                "partition": pa.array([offset % 2 for offset in offsets], pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array([SEEN + timedelta(seconds=o) for o in offsets], pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0] * count, pa.int32()),
            }
            | columns
        )
        failures = [Failure(i, "decode_value", reason or f"was_{kind}", "bad", "$.a") for i, kind in enumerate(kinds)]
        rows = dead_letter_rows(
            records, failures, stream="payments", config_hash="abc", batch_id=1, epoch=1, first_seen=seen
        )
        self.append(self.dead(), rows)
        return offsets

    def append(self, table: Table, rows: pa.RecordBatch) -> None:
        """Append rows as another writer does."""
        writer = TargetWriter(table.metadata, table.io, file_prefix="test")
        writer.write(rows)
        commit_once(table, Append(writer.close()), summary={}, properties={})

    def replay(self, *, most: int = MAX_LETTERS, **request: Any) -> ReplayResult:
        return replay(*self.given, ReplayRequest(by="tester", **request), most=most)

    def dry_run(self, **request: Any) -> ReplayResult:
        return dry_run(self.spec, self.catalog, ReplayRequest(**request))

    def landed(self) -> Counter[str]:
        """Numbers of rows in the stream's table by id."""
        return Counter(self.sink().scan(selected_fields=("id",)).to_arrow().column("id").to_pylist())

    def lives(self) -> dict[int, dict[str, Any]]:
        """The dead letters by offset."""
        rows = self.dead().scan().to_arrow().to_pylist()
        found = {row["offset"]: row for row in rows}
        assert len(found) == len(rows), "one letter per record"
        return found

    def states(self) -> Counter[str]:
        return Counter(row["state"] or "new" for row in self.lives().values())

    def start(self, steps: str = "", *arguments: str) -> Forked:
        """`frazil replay` as a process of its own."""
        command = ("--home", str(self.home), "replay", "payments", *arguments)
        return Forked(frazil, *command, env={"FRAZIL_STEPS": steps}, folder=self.home)
