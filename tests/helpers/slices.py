"""A task's slice without Spark: records in, what would be committed out."""

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
from pyiceberg.table import Table

from jobs.commit.stamp_parts import Counts
from jobs.runtime.opening import ensure_tables
from jobs.runtime.slice_plan import SlicePlan, Tally, TargetPlan, task_metadata
from jobs.runtime.slice_task import run_slice
from jobs.spec.models import StreamSpec
from jobs.write.datafile_json import from_json

FIRST_SEEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
TIMESTAMP = datetime(2026, 1, 30, 8, 15, 0, 123_000, tzinfo=UTC)

RECORD_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("topic", pa.string()),
    ]
)


def stream_spec(schema: str, *, unknown_fields: str = "ignore", errors: Any = None, **table: Any) -> StreamSpec:
    """A stream of one topic."""
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": schema, "unknown_fields": unknown_fields},
            "table": {"name": "orders.payments", **table},
            "errors": errors or {},
        }
    )


def records(values: Sequence[bytes | None], *, first: int = 0, headers: str | None = None) -> pa.RecordBatch:
    """A block of one partition, as Spark's Kafka source gives it."""
    count = len(values)
    columns = [
        pa.array([f"k{first + i}".encode() for i in range(count)], pa.binary()),
        pa.array(values, pa.binary()),
        pa.array([headers] * count, pa.string()),
        pa.array([0] * count, pa.int32()),
        pa.array(range(first, first + count), pa.int64()),
        pa.array([TIMESTAMP] * count, pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
        pa.array(["payments"] * count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


@dataclass(slots=True)
class Slice:
    """What a slice made: rows by `_kafka_offset` or in order, letters by offset, and its tallies."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    letters: dict[int, dict[str, Any]] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    letter_count: int = 0

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


class SliceWorld:
    """A catalog with a stream's two tables, and slices that run on them as tasks do.

    Args:
        folder: An empty one.
        spec: The stream.
    """

    def __init__(self, folder: Path, spec: StreamSpec) -> None:
        self.spec: StreamSpec = spec
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

    def plan(self) -> SlicePlan:
        targets = {name: table.metadata for name, table in (("anchor", self.anchor), ("dead", self.letters))}
        return SlicePlan(
            stream=self.spec.stream,
            config=self.spec.config_hash,
            batch=3,
            epoch=2,
            first_seen=FIRST_SEEN,
            schema_text=self.spec.decode.schema_text,
            unknown_fields=self.spec.decode.unknown_fields,
            kafka_columns=self.spec.table.kafka_columns,
            anchor=TargetPlan(task_metadata(targets["anchor"])),
            dead_letters=TargetPlan(task_metadata(targets["dead"])),
            file_prefix="payments-2-3-test",
            mask=self.spec.errors.mask,
        )

    def run(self, *blocks: pa.RecordBatch) -> Slice:
        """One slice; its files are read, not committed."""
        made = Slice()
        (results,) = run_slice(self.plan(), iter(blocks))
        tables = {"anchor": self.anchor, "dead_letters": self.letters}
        for row in results.to_pylist():
            if row["kind"] == "tally":
                made.tallies.append(msgspec.json.decode(row["payload"], type=Tally))
                continue
            file = from_json(msgspec.json.decode(row["payload"]), tables[row["target"]].metadata)
            found = pq.ParquetFile(file.file_path.removeprefix("file://")).read().to_pylist()
            if row["target"] == "anchor":
                made.rows.extend(found)
            else:
                made.letter_count += len(found)
                made.letters.update({letter["offset"]: letter for letter in found})
        return made

    def close(self) -> None:
        self.catalog.close()
