"""A task without Spark: records in, what would be committed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.clients.kafka.records import WHOLE, FetchedBlock
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.pipeline.row_steps import row_steps_of
from jobs.streaming.task.event_time import EventTimePlan
from jobs.streaming.task.plan import TargetPlan, TaskPlan, task_metadata
from jobs.streaming.task.run import run_split
from jobs.streaming.task.tally import Tally
from jobs.streaming.task.ways import MakePipeline
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.write.datafile_json import from_json

FIRST_SEEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
TIMESTAMP = datetime(2026, 1, 30, 8, 15, 0, 123_000, tzinfo=UTC)


def stream_spec(
    schema: str, *, unknown_fields: str = "ignore", errors: Any = None, decode: Any = None, **table: Any
) -> StreamSpec:
    """A stream of one topic."""
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": schema, "unknown_fields": unknown_fields} | (decode or {}),
            "table": {"name": "orders.payments", **table},
            "errors": errors or {},
        }
    )


def records(
    values: Sequence[bytes | None], *, first: int = 0, headers: Sequence[tuple[str, bytes | None]] = ()
) -> pa.RecordBatch:
    """Records of one partition, as Kafka has them."""
    count = len(values)
    columns = {
        "key": [f"k{first + i}".encode() for i in range(count)],
        "value": values,
        "headers": [[{"key": key, "value": value} for key, value in headers] or None] * count,
        "topic": ["payments"] * count,
        "partition": [0] * count,
        "offset": range(first, first + count),
        "timestamp": [TIMESTAMP] * count,
        "timestampType": [0] * count,
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in WHOLE], schema=WHOLE)


def as_block(whole: pa.RecordBatch, parts: frozenset[str] = frozenset()) -> FetchedBlock:
    """Records as a task takes them, with what it asks for besides."""
    asked = ["timestampType" if part == "timestamp_type" else part for part in parts]
    needed = whole.select(["value", "topic", "partition", "offset", "timestamp", *asked])
    return FetchedBlock(TopicPartition("payments", 0), needed, lambda rows: whole.take(pa.array(rows, pa.int64())))


@dataclass(slots=True)
class TaskOutput:
    """Output of a task: rows by `_kafka_offset` or in order, dead letters by offset, tallies, and the table's files."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    letters: dict[int, dict[str, Any]] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    letter_count: int = 0
    files: list[DataFile] = field(default_factory=list)

    @property
    def offsets(self) -> list[int]:
        return sorted(row["_kafka_offset"] for row in self.rows)

    @property
    def counts(self) -> Counts:
        return Counts(
            sum(tally.read for tally in self.tallies),
            sum(tally.landed for tally in self.tallies),
            sum(tally.dead for tally in self.tallies),
            sum(tally.tombstones for tally in self.tallies),
        )


class TaskWorld:
    """A catalog with a stream's two tables, and tasks that run on them.

    Args:
        folder: An empty folder.
        spec: Spec of the stream.
        make_pipeline: Function that makes the pipeline of its records.

    Attributes:
        event_time: Plan of its tasks for event time; None without event time.
    """

    def __init__(self, folder: Path, spec: StreamSpec, make_pipeline: MakePipeline = stream_pipeline) -> None:
        self.spec: StreamSpec = spec
        self._make_pipeline: MakePipeline = make_pipeline
        self.event_time: EventTimePlan | None = None
        self.catalog: Catalog = SqlCatalog(
            "test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        ensure_tables(spec, self.catalog)

    @property
    def anchor(self) -> Table:
        return self.catalog.load_table(self.spec.table.name)

    @property
    def letters(self) -> Table:
        return self.catalog.load_table(self.spec.dead_letter_table)

    def plan(self) -> TaskPlan:
        tables = {target: self.catalog.load_table(target.name).metadata for target in self.spec.targets}
        return TaskPlan(
            stream=self.spec.stream,
            config=self.spec.config_hash,
            batch=3,
            epoch=2,
            first_seen=FIRST_SEEN,
            resolved=self.spec.resolved,
            columns=self.spec.record_columns,
            targets=tuple(TargetPlan(target, task_metadata(metadata)) for target, metadata in tables.items()),
            file_prefix="payments-2-3-test",
            mask=self.spec.errors.mask,
            event_time=self.event_time,
            steps=row_steps_of(self.spec),
            route=self.spec.route,
            late_table=self.spec.late_table,
        )

    def run(self, *blocks: pa.RecordBatch) -> TaskOutput:
        """Run a task; its files are read, not committed."""
        made = TaskOutput()
        plan = self.plan()
        results = run_split(plan, [as_block(each, plan.columns.fetched) for each in blocks], self._make_pipeline)
        tables = {name: self.catalog.load_table(name) for name in self.spec.target_names}
        for kind, target, payload in results:
            if kind == "tally":
                made.tallies.append(msgspec.json.decode(payload, type=Tally))
                continue
            file = from_json(msgspec.json.decode(payload), tables[target].metadata)
            found = pq.ParquetFile(file.file_path.removeprefix("file://")).read().to_pylist()
            if target == self.spec.table.name:
                made.rows.extend(found)
                made.files.append(file)
            else:
                made.letter_count += len(found)
                made.letters.update({letter["offset"]: letter for letter in found})
        return made

    def close(self) -> None:
        self.catalog.close()
