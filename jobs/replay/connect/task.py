"""Task of a queue batch: reads, decodes and counts Kafka Connect's dead letters, and writes their data files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.commit.offsets import Ranges, TopicPartition
from jobs.commit.target_positions import TargetNeed
from jobs.deadletter.rows import dead_letter_rows
from jobs.deadletter.selection import NO_COORDINATES
from jobs.formats.decoder import Failure
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import SchemaLookup
from jobs.kafka.topic_reader import TopicReader
from jobs.replay.connect.landed import left_out
from jobs.replay.connect.records import QueueRecords, queue_records
from jobs.replay.pipeline import record_pipeline
from jobs.replay.request import MAX_BYTES
from jobs.replay.whole_letters import REPLAY_STAGE
from jobs.spec.mask import NO_MASK
from jobs.spec.models import StreamSpec
from jobs.stream.results import TaskResults
from jobs.task.tally import Tally
from jobs.write.target_writer import TargetWriter


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Records of a queue by what became of them; see `QueueResult`."""

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
    """What becomes of fetched records.

    Attributes:
        rows: Those that land, in the table's columns.
        failures: Of those that become letters, by their places among the fetched.
    """

    partition: TopicPartition
    fetched: QueueRecords
    rows: pa.RecordBatch
    failures: list[Failure]
    counts: QueueCounts


FIRST_RECORDS = 2_000
MAX_RECORDS = 20_000
_GROWTH = 4


class BatchSize:
    """Learns from each batch how many records the next one may have, to hold about `MAX_BYTES`."""

    def __init__(self) -> None:
        self.most: int = FIRST_RECORDS

    def learn(self, records: int, size: int) -> None:
        """A batch held so many records, of so many bytes in memory together."""
        if records:
            average = max(1, size // records)
            self.most = max(1, min(MAX_RECORDS, self.most * _GROWTH, MAX_BYTES // average))


class QueueTask:
    """Processes batches of a queue.

    Args:
        spec: The stream, as its file has it.
        corrected: With the correction, if there is one.
        reader: Of the topic.
        schemas: Finds the writer schemas of records that name theirs.

    Attributes:
        size: How many records the next ranges may have.
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
        sink: Table,
        letters: Table,
        needs: Mapping[str, TargetNeed],
        *,
        first_seen: datetime,
        file_prefix: str,
    ) -> tuple[TaskResults, QueueCounts]:
        """Read the ranges and write what lands and what does not; nothing is committed.

        Args:
            needs: By table: what it has already.
        """
        rows_to = TargetWriter(sink.metadata, sink.io, file_prefix=file_prefix)
        letters_to = TargetWriter(letters.metadata, letters.io, file_prefix=file_prefix)
        tallies, counts = [], QueueCounts()
        try:
            for outcome in self.process(ranges, sink, letters, needs):
                if outcome.rows.num_rows:
                    rows_to.add(outcome.rows)
                if outcome.failures:
                    letters_to.write(self._letters(outcome.fetched, outcome.failures, first_seen, sink))
                tallies.append(_tally(outcome, self._spec))
                counts += outcome.counts
            files = {self._spec.table.name: rows_to.close(), self._spec.dead_letter_table: letters_to.close()}
        except BaseException:
            rows_to.abort()
            letters_to.abort()
            raise
        return TaskResults(files, tallies), counts

    def process(
        self, ranges: Ranges, sink: Table, letters: Table, needs: Mapping[str, TargetNeed] | None = None
    ) -> Iterator[QueueOutcome]:
        """Read the ranges, and find out what becomes of their records; nothing is written.

        Args:
            needs: By table: what it has already; without it, nothing of the ranges.
        """
        pipeline = record_pipeline(self._corrected, sink, self._schemas)
        quote = self._spec.errors.mask == NO_MASK
        read = [
            (partition, queue_records(messages, quote=quote))
            for partition, range_ in sorted(ranges.items())
            if range_.end > range_.start
            for messages in self._reader.read(partition, range_)
        ]
        every = [fetched for _, fetched in read]
        self.size.learn(sum(each.records.num_rows for each in every), sum(each.records.nbytes for each in every))
        masks = left_out(every, self._spec, sink, letters)
        for (partition, fetched), (out, left) in zip(read, masks, strict=True):
            block = pipeline.run(fetched.records)
            refused = out | fetched.lacking
            sink_name, letters_name = self._spec.table.name, self._spec.dead_letter_table
            lands = ~refused[block.positions] & _needed(needs, sink_name, partition, fetched.queue[block.positions])
            empty = set(block.dropped)
            failures = [each for each in block.failures if not refused[each.row]]
            failures += [_lacking(int(row)) for row in np.flatnonzero(fetched.lacking & ~out) if row not in empty]
            failures = [
                _with_reason(each, fetched.reasons[each.row])
                for each in failures
                if _needed(needs, letters_name, partition, fetched.queue[[each.row]])[0]
            ]
            counts = QueueCounts(
                read=fetched.records.num_rows,
                landed=int(lands.sum()),
                dead=len(failures),
                known=int((out & ~left).sum()),
                tombstones=int((~out[block.dropped]).sum()),
                without_coordinates=sum(failure.error_class == NO_COORDINATES for failure in failures),
                left=int(left.sum()),
            )
            yield QueueOutcome(partition, fetched, block.rows.filter(pa.array(lands)), failures, counts)

    def _letters(
        self, fetched: QueueRecords, failures: list[Failure], first_seen: datetime, sink: Table
    ) -> pa.RecordBatch:
        failures = sorted(failures, key=lambda failure: failure.row)
        resolved = self._spec.resolved_for(sink.schema(), sink.properties)
        return dead_letter_rows(
            fetched.records.take(pa.array([failure.row for failure in failures])),
            failures,
            stream=self._spec.stream,
            config_hash=self._corrected.config_hash,
            # They number the batches of the stream's own driver, which the topic of the letters follows.
            batch_id=None,
            epoch=None,
            first_seen=first_seen,
            mask=self._spec.errors.mask,
            rows=resolved.schema,
            columns=self._spec.record_columns,
            json_fields=FORMATS[self._spec.decode.format].json_fields,
            names=resolved.names,
        )


def _lacking(row: int) -> Failure:
    message = "the headers do not say which record it was: it stands at the coordinates that it has in the queue"
    return Failure(row, REPLAY_STAGE, NO_COORDINATES, message, None)


def _with_reason(failure: Failure, reason: str | None) -> Failure:
    return failure if reason is None else failure.saying(f"{failure.message} (Kafka Connect: {reason})")


def _tally(outcome: QueueOutcome, spec: StreamSpec) -> Tally:
    counts = outcome.counts
    tally = Tally(outcome.partition.topic, outcome.partition.partition, read=counts.read)
    tally.landed, tally.dead, tally.tombstones = counts.landed, counts.dead, counts.tombstones
    tally.rows = {spec.table.name: counts.landed, spec.dead_letter_table: counts.dead}
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
