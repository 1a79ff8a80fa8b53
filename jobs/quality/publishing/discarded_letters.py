"""Dead letters of discarded snapshots: one per record, with the record's bytes if Kafka still has them.

If Kafka no longer has the record, or has another one in its place, the dead letter keeps the branch's row as JSON.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from jobs.base.errors import FrazilError
from jobs.clients.kafka.records import HEADERS, WHOLE
from jobs.config.steps.shaping import added_by
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK, Mask
from jobs.dead_letters.replay.landed import LETTER_COLUMNS, record_keys
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import DISCARDED
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.declared import quoted
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.tables.commit.history.discards import Discard
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.dead_letter_table.row_json import (
    DISCARDED_ROW,
    carried_columns,
    rows_as_json,
    uncarried_column,
)
from jobs.tables.dead_letter_table.rows import dead_letter_rows

_AT_ONCE = 5_000
_TYPES = {"CreateTime": 0, "LogAppendTime": 1}


class RecordReader(Protocol):
    """Reader of Kafka's records by their offsets."""

    def read(self, partition: TopicPartition, offsets: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Records of a partition in the columns of `WHOLE`: all existing ones of the offsets, and possibly others.

        Args:
            partition: Partition of the topic.
            offsets: Offsets, ascending.
        """
        ...


class NoRecords:
    """Reader without records, so that all dead letters keep their rows."""

    def read(self, partition: TopicPartition, offsets: np.ndarray) -> Iterator[pa.RecordBatch]:
        """No records."""
        return iter(())


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """Numbers of a discard's dead letters.

    Attributes:
        letters: All dead letters.
        as_rows: Dead letters that keep the row as JSON.
        masked: Dead letters from which a mask removed something.
    """

    letters: int = 0
    as_rows: int = 0
    masked: int = 0

    def __add__(self, other: LetterCounts) -> LetterCounts:
        """The sums."""
        return LetterCounts(self.letters + other.letters, self.as_rows + other.as_rows, self.masked + other.masked)


def counts_of(letters: pa.RecordBatch) -> LetterCounts:
    """Numbers of dead letters in a batch with the column `stage`, and `masked` if there is one."""
    index = letters.schema.get_field_index("masked")
    masked = letters.num_rows - letters.column(index).null_count if index >= 0 else 0
    rows = sum(each == DISCARDED_ROW for each in letters.column("stage").to_pylist())
    return LetterCounts(letters.num_rows, rows, masked)


def letters_of(table: Table, stream: str, at: datetime) -> LetterCounts:
    """Dead letters of a discard in their table: all, as they are committed at once, or none.

    Args:
        table: Dead-letter table.
        stream: Name of the stream.
        at: Time of the discard, the first-seen time of its dead letters only.
    """
    if table.current_snapshot() is None:
        return LetterCounts()
    seen = EqualTo("first_seen", at.astimezone(UTC).isoformat())
    wanted = And(EqualTo("stream", stream), EqualTo("error_class", DISCARDED), seen)
    fields = tuple(name for name in ("stage", "masked") if name in table.schema().column_names)
    batches = table.scan(row_filter=wanted, selected_fields=fields).to_arrow_batch_reader()
    return sum(map(counts_of, batches), LetterCounts())


@dataclass(frozen=True, slots=True)
class DiscardedLetters:
    """Makes the dead letters of discarded snapshots.

    Attributes:
        table: The stream's table.
        files: Data files of the snapshots.
        discard: The decision.
        reader: Reader of the records.
    """

    spec: StreamSpec
    table: Table
    files: Sequence[DataFile]
    discard: Discard
    reader: RecordReader

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The dead letters, one per record, in the columns of the dead-letter table.

        Raises:
            FrazilError: A row lacks its coordinates, or its record no longer exists and it cannot be kept as JSON.
            KafkaUnavailableError: Kafka does not answer.
        """
        topics: dict[str, int] = {}
        twice = self._twice(topics)
        met: set[bytes] = set()
        for rows in _rows_of(self.table, self.files, self.table.schema()):
            for start in range(0, rows.num_rows, _AT_ONCE):
                part = rows.slice(start, _AT_ONCE)
                keys = record_keys(self._coordinates(part), topics, LETTER_COLUMNS)
                if twice:
                    part, keys = _first_only(part, keys, twice, met)
                if part.num_rows:
                    yield from self._letters(part, keys, topics)

    def records(self) -> int:
        """Number of the rows' records."""
        topics: dict[str, int] = {}
        keys = [record_keys(each, topics, LETTER_COLUMNS) for each in self._all_coordinates()]
        return len(pc.unique(pa.chunked_array(keys, pa.binary(24))))

    def _twice(self, topics: dict[str, int]) -> frozenset[bytes]:
        """Records with several rows."""
        keys = [record_keys(each, topics, LETTER_COLUMNS) for each in self._all_coordinates()]
        counted = pc.value_counts(pa.chunked_array(keys, pa.binary(24)))
        several = counted.filter(pc.greater(counted.field("counts"), 1))
        return frozenset(several.field("values").to_pylist())

    def _all_coordinates(self) -> Iterator[pa.RecordBatch]:
        columns = self.spec.kafka_columns.instant_coordinates
        for rows in _rows_of(self.table, self.files, self.table.schema().select(*columns)):
            yield self._coordinates(rows)

    def _coordinates(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Coordinates of rows, in the columns of dead letters."""
        kafka = self.spec.kafka_columns
        columns = [rows.column(name) for name in kafka.instant_coordinates]
        if any(each.null_count for each in columns[:3]):
            named = ", ".join(kafka.coordinates)
            raise FrazilError(
                f"stream {self.spec.stream}: quarantined rows do not name their records: {named} are null. Nothing "
                "was discarded.",
                fix=f"`frazil release {self.spec.stream}`, and delete from main what must go",
            )
        kinds = [WHOLE.field(name).type for name in LETTER_COLUMNS]
        cast = [column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(cast, list(LETTER_COLUMNS))

    def _letters(self, rows: pa.RecordBatch, keys: pa.Array, topics: dict[str, int]) -> Iterator[pa.RecordBatch]:
        """Dead letters of rows, each of a different record."""
        coordinates = self._coordinates(rows)
        found = np.zeros(rows.num_rows, dtype=bool)
        for partition, offsets in _by_partition(coordinates):
            for records in self.reader.read(partition, offsets):
                theirs = record_keys(records, topics, LETTER_COLUMNS)
                wanted = records.filter(pc.is_in(theirs, value_set=keys))
                if wanted.num_rows:
                    found |= pc.is_in(keys, value_set=theirs).to_numpy(zero_copy_only=False)
                    yield self._made(wanted, as_rows=False)
        if not found.all():
            gone = pa.array(~found)
            yield self._made(self._as_records(rows.filter(gone), coordinates.filter(gone)), as_rows=True)

    def _as_records(self, rows: pa.RecordBatch, coordinates: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as JSON in the form of records, with their other parts in the table."""
        kafka, table = self.spec.kafka_columns, self.table.schema()
        if said := uncarried_column(table, kafka):
            raise FrazilError(
                f"stream {self.spec.stream}: Kafka does not have {rows.num_rows:,} records of quarantined rows any "
                f"more, and the rows cannot be kept as JSON: column {said}. Nothing was discarded.",
                fix=f"`frazil release {self.spec.stream}`, and delete from main what must go",
            )

        def of(part: str | None, kind: pa.DataType) -> pa.Array:
            return pa.nulls(rows.num_rows, kind) if part is None else rows.column(part).cast(kind)

        kinds = of(kafka.timestamp_type, pa.string()).to_pylist()
        columns = {
            "key": of(kafka.key, pa.binary()),
            "value": pa.array(rows_as_json(rows, table, kafka), pa.binary()),
            "headers": of(kafka.headers, HEADERS),
            **{name: coordinates.column(name) for name in LETTER_COLUMNS},
            "timestampType": pa.array([_TYPES.get(each) for each in kinds], pa.int32()),
        }
        return pa.RecordBatch.from_arrays([columns[each.name] for each in WHOLE], schema=WHOLE)

    def _made(self, records: pa.RecordBatch, *, as_rows: bool) -> pa.RecordBatch:
        spec, table, discard = self.spec, self.table, self.discard
        stage = DISCARDED_ROW if as_rows else DISCARDED
        failed = f"; {'; '.join(discard.reasons)}" if discard.reasons else ""
        kept = "; the row is kept as JSON, for Kafka does not have the record any more" if as_rows else ""
        message = f"discarded by {discard.by}: {discard.why}{failed}{kept}"
        failures = [Failure(row, stage, DISCARDED, message, None) for row in range(records.num_rows)]
        resolved = spec.resolved_for(table.schema(), table.properties)
        rows = carried_columns(table.schema(), spec.kafka_columns) if as_rows else resolved.schema
        columns = spec.record_columns_for(table.schema(), table.properties)
        return dead_letter_rows(
            records,
            failures,
            stream=spec.stream,
            config_hash=spec.config_hash,
            batch_id=None,
            epoch=None,
            first_seen=discard.at,
            mask=_mask_of_rows(spec, columns, rows) if as_rows else spec.errors.mask,
            rows=rows,
            columns=RecordColumns(spec.kafka_columns) if as_rows else columns,
            json_fields=as_rows or FORMATS[resolved.decoder.kind].json_fields,
            names=resolved.names,
        )


def _mask_of_rows(spec: StreamSpec, columns: RecordColumns, rows: Schema) -> Mask:
    """Mask for rows as JSON, where columns from key and headers are fields as well.

    A mask names parts of the record. Values that steps made from masked ones may have any name.
    """
    mask = spec.errors.mask
    more = list(columns.key_names) if mask.key else []
    more += [each.name for each in columns.headers if each.header in mask.headers]
    # A masked value may have been a field without a column.
    more += [EXTRA_COLUMN] if mask.columns else []
    if mask != NO_MASK:
        renames = any(each.adds is None for each in spec.chain.steps)
        more += [each.name for each in rows.fields] if renames else sorted(added_by(spec.chain))
    return Mask(columns=(*mask.columns, *map(quoted, more)), headers=mask.headers, key=mask.key)


def _rows_of(table: Table, files: Sequence[DataFile], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Rows of complete data files: nothing is ever deleted on a published branch."""
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    for file in files:
        yield from scan.to_record_batches([FileScanTask(file)])


def _first_only(
    rows: pa.RecordBatch, keys: pa.Array, twice: frozenset[bytes], met: set[bytes]
) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows, with only the first of each record."""
    kept: list[int] = []
    for row, key in enumerate(keys.to_pylist()):
        if key in twice:
            if key in met:
                continue
            met.add(key)
        kept.append(row)
    those = pa.array(kept, pa.int64())
    return rows.take(those), keys.take(those)


def _by_partition(coordinates: pa.RecordBatch) -> Iterator[tuple[TopicPartition, np.ndarray]]:
    """Offsets of each partition, ascending."""
    grouped = pa.Table.from_batches([coordinates]).group_by(["topic", "partition"]).aggregate([("offset", "list")])
    for row in grouped.to_pylist():
        yield TopicPartition(row["topic"], row["partition"]), np.sort(np.array(row["offset_list"], np.int64))
