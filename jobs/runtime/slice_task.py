"""What a Spark task does with its slice of a batch: decode, route, write data files, and tell what it did.

Rows go in as Arrow record batches; out come a few rows of JSON, each a data file's descriptor or a tally. Nothing is
committed here, so whatever a failed or repeated attempt has written is referenced by nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from jobs.commit.offsets import TopicPartition
from jobs.deadletter.table import dead_letter_rows
from jobs.decode.json_reference import JsonReferenceDecoder
from jobs.decode.outcome import Decoded, Failure
from jobs.schema.declared import parse_schema
from jobs.write.datafile_json import to_json
from jobs.write.target_writer import TargetWriter

RESULT_SCHEMA = "kind string, target string, payload string"
_RESULT_ARROW = pa.schema([("kind", pa.string()), ("target", pa.string()), ("payload", pa.string())])


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a task writes for one target.

    Attributes:
        metadata: The table's metadata as JSON, without its history.
        skip: Partitions that the target has entirely.
        floors: Of partitions it has in part, the first offset it needs.
    """

    metadata: str
    skip: frozenset[TopicPartition] = frozenset()
    floors: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """All that a task needs to know; travels to it pickled.

    Attributes:
        io_properties: For the tables' files. May hold credentials: never logged, and left out of the repr.
        topic: The topic, if the batch has only one: it then does not travel with every row.
        first_seen: When the batch was planned, UTC.
    """

    stream: str
    config: str
    batch: int
    epoch: int
    first_seen: datetime
    schema_text: str
    unknown_fields: Literal["ignore", "fail"]
    kafka_columns: bool
    anchor: TargetPlan
    dead_letters: TargetPlan
    file_prefix: str
    topic: str | None = None
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)


class Example(msgspec.Struct, frozen=True):
    """A failed record, as an example of its kind."""

    topic: str
    partition: int
    offset: int
    stage: str
    error_class: str
    message: str


class Tally(msgspec.Struct):
    """What a task counted in one (topic, partition), of the records that the anchor had not yet read.

    Attributes:
        newest_ms: The greatest record timestamp, milliseconds since 1970, UTC; of all records of the slice.
        reasons: Failed records by class.
        examples: One failed record of each class.
        unknown_fields: Records by the path of a key that the schema does not name.
    """

    topic: str
    partition: int
    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    newest_ms: int | None = None
    reasons: dict[str, int] = {}
    examples: dict[str, Example] = {}
    unknown_fields: dict[str, int] = {}


def task_metadata(metadata: TableMetadata) -> str:
    """A table's metadata as a task needs it: schemas, partition specs and properties, without its history."""
    slim = metadata.model_copy(
        update={
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
            "properties": {k: v for k, v in metadata.properties.items() if not k.startswith("frazil.")},
        }
    )
    return slim.model_dump_json()


def run_slice(plan: SlicePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode and write one slice; yields one batch of results at its end."""
    work = _Slice(plan)
    try:
        for records in batches:
            if records.num_rows:
                work.take(records)
        yield work.finish()
    except BaseException:
        work.abort()
        raise


class _Slice:
    def __init__(self, plan: SlicePlan) -> None:
        self._plan: SlicePlan = plan
        self._decoder: JsonReferenceDecoder = JsonReferenceDecoder(
            parse_schema(plan.schema_text), unknown_fields=plan.unknown_fields
        )
        self._tallies: dict[TopicPartition, Tally] = {}
        self._anchor: _Sink = _Sink(plan.anchor, plan)
        self._dead: _Sink = _Sink(plan.dead_letters, plan)

    def take(self, records: pa.RecordBatch) -> None:
        if self._plan.topic is not None:
            topic = pa.repeat(pa.scalar(self._plan.topic, pa.string()), records.num_rows)
            records = records.append_column("topic", topic)
        for source, part in _by_partition(records):
            self._take_partition(source, part)

    def _take_partition(self, source: TopicPartition, records: pa.RecordBatch) -> None:
        tally = self._tallies.setdefault(source, Tally(source.topic, source.partition))
        newest = _newest_ms(records)
        if newest is not None:
            tally.newest_ms = newest if tally.newest_ms is None else max(newest, tally.newest_ms)
        offsets = records.column("offset").to_numpy()
        for_anchor = self._anchor.wants(source, offsets)
        for_dead = self._dead.wants(source, offsets)
        if not (for_anchor.any() or for_dead.any()):
            return
        decoded = self._decoder.decode(records.column("value"))
        self._count(tally, records, decoded, for_anchor)
        self._land(records, decoded, for_anchor)
        failures = [failure for failure in decoded.failures if for_dead[failure.row]]
        if failures:
            self._dead.writer.write(
                dead_letter_rows(
                    records,
                    failures,
                    stream=self._plan.stream,
                    config_hash=self._plan.config,
                    batch_id=self._plan.batch,
                    epoch=self._plan.epoch,
                    first_seen=self._plan.first_seen,
                )
            )

    def _land(self, records: pa.RecordBatch, decoded: Decoded, wanted: np.ndarray) -> None:
        rows, positions = decoded.rows, decoded.positions
        if not wanted.all():
            keep = wanted[positions]
            rows, positions = rows.filter(pa.array(keep)), positions[keep]
        if not rows.num_rows:
            return
        if self._plan.kafka_columns:
            rows = _with_kafka_columns(rows, records, positions)
        self._anchor.writer.write(rows)

    def _count(self, tally: Tally, records: pa.RecordBatch, decoded: Decoded, wanted: np.ndarray) -> None:
        if not wanted.any():
            return
        tally.read += int(wanted.sum())
        tally.landed += int(wanted[decoded.positions].sum())
        tally.tombstones += int(wanted[decoded.tombstones].sum())
        for failure in decoded.failures:
            if wanted[failure.row]:
                tally.dead += 1
                tally.reasons[failure.error_class] = tally.reasons.get(failure.error_class, 0) + 1
                if failure.error_class not in tally.examples:
                    tally.examples[failure.error_class] = _example(tally, records, failure)
        for path, count in decoded.unknown_fields.items():
            tally.unknown_fields[path] = tally.unknown_fields.get(path, 0) + count

    def finish(self) -> pa.RecordBatch:
        kinds: list[str] = []
        targets: list[str] = []
        payloads: list[str] = []
        for name, sink in (("anchor", self._anchor), ("dead_letters", self._dead)):
            for payload in sink.close():
                kinds.append("file")
                targets.append(name)
                payloads.append(payload)
        for tally in self._tallies.values():
            kinds.append("tally")
            targets.append("")
            payloads.append(msgspec.json.encode(tally).decode())
        return pa.record_batch([kinds, targets, payloads], schema=_RESULT_ARROW)

    def abort(self) -> None:
        self._anchor.abort()
        self._dead.abort()


class _Sink:
    """One target's writer, opened when its first row comes."""

    def __init__(self, plan: TargetPlan, slice_plan: SlicePlan) -> None:
        self._plan: TargetPlan = plan
        self._slice: SlicePlan = slice_plan
        self._metadata: TableMetadata | None = None
        self._writer: TargetWriter | None = None

    @property
    def writer(self) -> TargetWriter:
        if self._writer is None:
            self._metadata = TableMetadataUtil.parse_raw(self._plan.metadata)
            io = load_file_io(dict(self._slice.io_properties), self._metadata.location)
            self._writer = TargetWriter(self._metadata, io, file_prefix=self._slice.file_prefix)
        return self._writer

    def wants(self, source: TopicPartition, offsets: np.ndarray) -> np.ndarray:
        """Which of the records the target has not yet."""
        if source in self._plan.skip:
            return np.zeros(len(offsets), dtype=bool)
        floor = self._plan.floors.get(source)
        return np.ones(len(offsets), dtype=bool) if floor is None else offsets >= floor

    def close(self) -> list[str]:
        if self._writer is None or self._metadata is None:
            return []
        return [msgspec.json.encode(to_json(file, self._metadata)).decode() for file in self._writer.close()]

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _newest_ms(records: pa.RecordBatch) -> int | None:
    micros = records.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).drop_null().to_numpy()
    return int(micros.max()) // 1000 if len(micros) else None


def _by_partition(records: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split by (topic, partition); a slice of Kafka has one, so usually nothing is copied."""
    topics = records.column("topic")
    numbers = records.column("partition").to_numpy()
    changes = np.flatnonzero(np.diff(numbers)) + 1
    codes = topics.dictionary_encode().indices.to_numpy()
    if codes.any():
        changes = np.union1d(changes, np.flatnonzero(np.diff(codes)) + 1)
    bounds = [0, *changes.tolist(), records.num_rows]
    for start, end in itertools.pairwise(bounds):
        yield TopicPartition(topics[start].as_py(), int(numbers[start])), records.slice(start, end - start)


def _with_kafka_columns(rows: pa.RecordBatch, records: pa.RecordBatch, positions: np.ndarray) -> pa.RecordBatch:
    whole = len(positions) == records.num_rows
    indices = None if whole else pa.array(positions)
    columns = list(rows.columns)
    fields = list(rows.schema)
    for name, source in (
        ("_kafka_topic", "topic"),
        ("_kafka_partition", "partition"),
        ("_kafka_offset", "offset"),
        ("_kafka_timestamp", "timestamp"),
    ):
        column = records.column(source)
        column = column if indices is None else column.take(indices)
        columns.append(column)
        fields.append(pa.field(name, column.type))
    return pa.record_batch(columns, schema=pa.schema(fields))


def _example(tally: Tally, records: pa.RecordBatch, failure: Failure) -> Example:
    where = f" at {failure.field}" if failure.field else ""
    return Example(
        tally.topic,
        tally.partition,
        records.column("offset")[failure.row].as_py(),
        failure.stage,
        failure.error_class,
        f"{failure.message}{where}"[:500],
    )
