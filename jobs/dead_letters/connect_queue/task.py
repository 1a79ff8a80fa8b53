"""Task of a queue batch: reads and decodes Kafka Connect's dead letters, and writes rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.dead_letters.connect_queue.records import (
    QueueRecords,
    lacked,
    left_out,
    queue_records,
)
from jobs.dead_letters.replay.lanes import ReplayLanes
from jobs.dead_letters.replay.pipeline import REPLAY_STAGE, record_pipeline
from jobs.dead_letters.replay.request import MAX_BYTES
from jobs.dead_letters.replay.routing import ReadTables, routed_to, without_table
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.name_matching import EXACT_NAMES
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.pipeline.block import Indices, RoutedRows
from jobs.streaming.pipeline.pipeline import Pipeline
from jobs.streaming.pipeline.topic_tables import columns_by_topic
from jobs.streaming.task.tally import Tally, count_unknown_fields
from jobs.tables.commit.stamp.offsets import Ranges, TopicPartition
from jobs.tables.commit.stamp.target_positions import TargetNeed
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.dead_letter_table.selection import NO_COORDINATES
from jobs.tables.write.target_writer import TargetWriter

FAILED_THEN = "failed_before"
FIRST_RECORDS = 2_000
MAX_RECORDS = 20_000
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Processed:
    """Result of the pipeline for fetched records, by their indices.

    Attributes:
        rows: Rows by table, with their records.
        failures: Failures of records without a row.
        dropped: Indices of tombstones.
        unknown_fields: Records by the path of a field without a column.
    """

    rows: Mapping[str, RoutedRows]
    failures: list[Failure]
    dropped: Indices
    unknown_fields: Mapping[str, int]

    @property
    def landing(self) -> Indices:
        """The records that become rows, ascending."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(each.positions for each in self.rows.values())]))


class QueueRows:
    """Makes rows from a queue's records, by the tables' state during a batch.

    Args:
        batch_time: Time for now() in expressions; None: the time of this call.
    """

    def __init__(
        self,
        spec: StreamSpec,
        tables: Mapping[str, Table],
        schemas: SchemaLookup | None = None,
        batch_time: datetime | None = None,
    ) -> None:
        self._own: str = spec.table.name
        self._routed: bool = spec.route is not None
        given = ReadTables(tables.__getitem__)

        def of_lane(one: StreamSpec, table: Table) -> Pipeline:
            return record_pipeline(one, table, schemas, batch_time=batch_time)

        self._lanes: ReplayLanes | None = ReplayLanes(spec, given, of_lane) if spec.own_columns else None
        self._pipeline: Pipeline | None = None
        if self._lanes is None:
            routed = routed_to(spec, given) if self._routed else None
            self._pipeline = record_pipeline(spec, tables[self._own], schemas, routed=routed, batch_time=batch_time)

    def of(self, fetched: QueueRecords) -> Processed:
        """Process records.

        Raises:
            FrazilError: A table cannot hold its rows, or a topic would go to two tables.
        """
        if self._pipeline is None:
            return self._by_topic(fetched)
        block = self._pipeline.run(fetched.records)
        rows = block.routed if self._routed else {self._own: RoutedRows(block.rows, block.positions)}
        return Processed(rows, [*block.failures, *without_table(block)], block.dropped, block.unknown_fields)

    def _by_topic(self, fetched: QueueRecords) -> Processed:
        """Process records by the topics in their headers; records without one are skipped."""
        assert self._lanes is not None
        told = np.flatnonzero(~fetched.lacking)
        found = self._lanes.outcome(fetched.records.take(pa.array(told)), tombstones=True)
        empty = np.asarray(fetched.records.column("value").is_null()) & fetched.lacking
        return Processed(
            {each.table: RoutedRows(each.rows, told[each.letters]) for each in found.rows},
            [each.at(int(told[each.row])) for each in found.failures],
            np.sort(np.concatenate([told[found.dropped], np.flatnonzero(empty)])),
            found.unknown_fields,
        )


def queue_letters(
    spec: StreamSpec,
    config: str,
    tables: Mapping[str, Table],
    first_seen: datetime,
    fetched: QueueRecords,
    failures: Sequence[Failure],
) -> Iterator[pa.RecordBatch]:
    """Rows of the dead letters, grouped by the tables of their topics, whose names masks use.

    Args:
        config: Hash of the configuration under which the records failed.
        failures: Failures of new dead letters, by the fetched records' indices.
    """
    columns_of, topics = columns_by_topic(spec, tables.get), fetched.records.column("topic").to_pylist()
    by_columns: dict[int, tuple[ResolvedSchema | None, list[Failure]]] = {}
    for each in sorted(failures, key=lambda failure: failure.row):
        # The table of a record without a topic is unknown.
        unknown = spec.own_columns and bool(fetched.lacking[each.row])
        resolved = None if unknown else columns_of(topics[each.row])
        by_columns.setdefault(id(resolved), (resolved, []))[1].append(each)
    for resolved, those in by_columns.values():
        yield dead_letter_rows(
            fetched.records.take(pa.array([failure.row for failure in those])),
            those,
            stream=spec.stream,
            config_hash=config,
            # These number the batches of the stream's own driver, which the dead letters' topic follows.
            batch_id=None,
            epoch=None,
            first_seen=first_seen,
            mask=spec.errors.mask,
            rows=resolved.schema if resolved else Schema(),
            columns=spec.record_columns,
            json_fields=FORMATS[spec.decode.format].json_fields,
            names=resolved.names if resolved else EXACT_NAMES,
        )


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Records of a queue by their fate; see `QueueResult`."""

    read: int = 0
    landed: int = 0
    dead: int = 0
    known: int = 0
    tombstones: int = 0
    without_coordinates: int = 0
    left: int = 0

    def __add__(self, other: QueueCounts) -> QueueCounts:
        return QueueCounts(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """Fate of fetched records.

    Attributes:
        rows: Landing rows by table, in its columns.
        failures: Failures of new dead letters, by the fetched records' indices.
        failed: Number of records that could not land, whether the dead letters lack them or not.
        unknown_fields: Records by the path of a field without a column.
    """

    partition: TopicPartition
    fetched: QueueRecords
    rows: Mapping[str, pa.RecordBatch]
    failures: list[Failure]
    failed: int
    counts: QueueCounts
    unknown_fields: Mapping[str, int]


class BatchSize:
    """Learns from each batch the number of records for the next one, to hold about `MAX_BYTES`."""

    def __init__(self) -> None:
        self.most: int = FIRST_RECORDS

    def learn(self, records: int, size: int) -> None:
        """Learn the number and total bytes of a batch's records."""
        if records:
            average = max(1, size // records)
            self.most = max(1, min(MAX_RECORDS, self.most * _GROWTH, MAX_BYTES // average))


class QueueTask:
    """Processes batches of a queue.

    Args:
        corrected: The stream with the correction, if there is one.

    Attributes:
        size: Number of records for the next ranges.
    """

    def __init__(
        self, spec: StreamSpec, corrected: StreamSpec, reader: TopicReader, schemas: SchemaLookup | None = None
    ) -> None:
        self._spec: StreamSpec = spec
        self._schemas: SchemaLookup | None = schemas
        self._corrected: StreamSpec = corrected
        self._reader: TopicReader = reader
        self.size: BatchSize = BatchSize()

    def run(
        self,
        ranges: Ranges,
        tables: Mapping[str, Table],
        needs: Mapping[str, TargetNeed],
        *,
        first_seen: datetime,
        batch_time: datetime | None = None,
        file_prefix: str,
        decided: int | None = None,
    ) -> tuple[TaskResults, QueueCounts]:
        """Read the ranges, and write rows and dead letters; nothing is committed.

        Args:
            needs: What each table still needs.
            batch_time: Time for now() in expressions.
            decided: For ranges that the main table has already, the number of records that may fail.

        Raises:
            FrazilError: More fail: a record that landed elsewhere would be lost in a table.
        """
        dead = self._spec.dead_letter_table
        writers: dict[str, TargetWriter] = {}

        def writer(name: str) -> TargetWriter:
            if name not in writers:
                writers[name] = TargetWriter(tables[name].metadata, tables[name].io, file_prefix=file_prefix)
            return writers[name]

        tallies, counts, failed = [], QueueCounts(), 0
        try:
            for outcome in self.process(ranges, tables, needs, batch_time):
                for name, rows in outcome.rows.items():
                    if rows.num_rows:
                        writer(name).add(rows)
                if outcome.failures:
                    of = (self._spec, self._corrected.config_hash, tables, first_seen)
                    for letters in queue_letters(*of, outcome.fetched, outcome.failures):
                        writer(dead).write(letters)
                tallies.append(_tally(outcome, self._spec))
                counts += outcome.counts
                failed += outcome.failed
            if decided is not None and failed > decided:
                self._refuse_lost(needs, failed - decided)
            files = {name: writers[name].close() if name in writers else [] for name in tables}
        except BaseException:
            for each in writers.values():
                each.abort()
            raise
        return TaskResults(files, tallies), counts

    def _refuse_lost(self, needs: Mapping[str, TargetNeed], count: int) -> None:
        lack = ", ".join(sorted(name for name, each in needs.items() if not each.nothing))
        raise FrazilError(
            f"stream {self._spec.stream}: {lack} lacks a batch of the queue that the stream's other tables have, and "
            f"{count} of its records fail now that did not: a table, or what decodes them, has changed.",
            fix=f"alter {lack} back, then run this again",
        )

    def process(
        self,
        ranges: Ranges,
        tables: Mapping[str, Table],
        needs: Mapping[str, TargetNeed] | None = None,
        batch_time: datetime | None = None,
    ) -> Iterator[QueueOutcome]:
        """Read the ranges, and find out the fate of their records; nothing is written.

        A record lands in those of a route's tables that lack it, and is known if all of them have it.

        Args:
            needs: What each table still needs; None: everything.
            batch_time: Time for now() in expressions; None: the time of this call.
        """
        own, dead = self._spec.table.name, self._spec.dead_letter_table
        routed = self._corrected.route is not None
        rows_of = QueueRows(self._corrected, tables, self._schemas, batch_time)
        quote = self._spec.errors.mask == NO_MASK
        read = [
            (partition, queue_records(messages, quote=quote))
            for partition, range_ in sorted(ranges.items())
            if range_.end > range_.start
            for messages in self._reader.read(partition, range_)
        ]
        every = [fetched for _, fetched in read]
        self.size.learn(sum(each.records.num_rows for each in every), sum(each.records.nbytes for each in every))
        masks = list(left_out(every, self._spec, tables, routed=routed))
        blocks = [rows_of.of(fetched) for fetched in every]
        lack = self._lacked(every, [block.rows for block in blocks], tables) if routed else {}
        for number, ((partition, fetched), (out, left), block) in enumerate(zip(read, masks, blocks, strict=True)):
            refused = out | fetched.lacking
            rows: dict[str, pa.RecordBatch] = {}
            fresh = np.zeros(fetched.records.num_rows, dtype=bool)
            failed_then = list[Failure]()
            for name, each in block.rows.items():
                mine = ~refused[each.positions]
                if routed:
                    mine &= lack[name][number]
                needed = _needed(needs, name, partition, fetched.queue[each.positions])
                if self._corrected.own_columns:
                    failed_then += [_failed_then(int(row), name) for row in each.positions[mine & ~needed]]
                fresh[each.positions[mine]] = True
                mine &= needed
                rows[name] = each.rows.filter(pa.array(mine))
            stands = np.zeros(fetched.records.num_rows, dtype=bool)
            stands[block.landing] = ~refused[block.landing]
            # The run that committed the main table's rows has counted them.
            counted = _needed(needs, own, partition, fetched.queue)
            failures = [*_failures(block, fetched, out, refused), *failed_then]
            failed = len(failures)
            failures = [
                _with_reason(each, fetched.reasons[each.row])
                for each in failures
                if _needed(needs, dead, partition, fetched.queue[[each.row]])[0]
            ]
            counts = QueueCounts(
                read=fetched.records.num_rows,
                landed=int((fresh & counted).sum()),
                dead=len(failures),
                known=int((((out & ~left) | (stands & ~fresh)) & counted).sum()),
                tombstones=int((~out[block.dropped]).sum()),
                without_coordinates=sum(failure.error_class == NO_COORDINATES for failure in failures),
                left=int(left.sum()),
            )
            yield QueueOutcome(partition, fetched, rows, failures, failed, counts, block.unknown_fields)

    def _lacked(
        self, every: list[QueueRecords], made: list[Mapping[str, RoutedRows]], tables: Mapping[str, Table]
    ) -> dict[str, list[np.ndarray]]:
        """By table of a route, which records for it have no row there, for each block."""
        none = np.zeros(0, np.int64)
        names = dict.fromkeys(name for each in made for name in each)
        places = {name: [each[name].positions if name in each else none for each in made] for name in names}
        return {name: lacked(every, places[name], self._spec, name, tables) for name in names}


def _failures(block: Processed, fetched: QueueRecords, out: np.ndarray, refused: np.ndarray) -> list[Failure]:
    """Failures of records that are not left out."""
    empty = set(block.dropped)
    failures = [each for each in block.failures if not refused[each.row]]
    return failures + [_lacking(int(row)) for row in np.flatnonzero(fetched.lacking & ~out) if row not in empty]


def _failed_then(row: int, table: str) -> Failure:
    """Failure of a record without a row in a table that has its batch: it failed when that was decided."""
    message = f"failed when {table} got its batch, and would land now: replay the dead letter"
    return Failure(row, REPLAY_STAGE, FAILED_THEN, message, None)


def _lacking(row: int) -> Failure:
    message = "the headers do not name the record: it has its coordinates in the queue"
    return Failure(row, REPLAY_STAGE, NO_COORDINATES, message, None)


def _with_reason(failure: Failure, reason: str | None) -> Failure:
    return failure if reason is None else failure.saying(f"{failure.message} (Kafka Connect: {reason})")


def _tally(outcome: QueueOutcome, spec: StreamSpec) -> Tally:
    counts = outcome.counts
    tally = Tally(outcome.partition.topic, outcome.partition.partition, read=counts.read)
    tally.landed, tally.dead, tally.tombstones = counts.landed, counts.dead, counts.tombstones
    tally.rows = {name: rows.num_rows for name, rows in outcome.rows.items()} | {spec.dead_letter_table: counts.dead}
    count_unknown_fields(tally.unknown_fields, outcome.unknown_fields)
    tally.elsewhere = counts.landed - tally.rows.get(spec.table.name, 0)
    return tally


def _needed(
    needs: Mapping[str, TargetNeed] | None, table: str, partition: TopicPartition, offsets: np.ndarray
) -> np.ndarray:
    """Which records of a partition of the queue a table lacks."""
    if needs is None:
        return np.ones(len(offsets), dtype=bool)
    need = needs[table]
    if partition in need.skip:
        return np.zeros(len(offsets), dtype=bool)
    return offsets >= need.floors.get(partition, 0)
