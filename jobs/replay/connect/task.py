"""What is done with a batch of Connect's dead letters: read, decode, write data files, and count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.commit.decide import Need, Ranges, restart_positions, target_positions
from jobs.commit.history import history
from jobs.commit.offsets import TopicPartition
from jobs.deadletter.selection import NO_COORDINATES
from jobs.deadletter.table import dead_letter_rows
from jobs.errors import FrazilError
from jobs.formats.decoder import Failure
from jobs.kafka.topic_reader import TopicReader
from jobs.replay.connect.records import Lot, lot_of
from jobs.replay.dry_run import MAX_BYTES
from jobs.replay.landed import LETTER_COLUMNS, first_of, standing
from jobs.replay.pipeline import REPLAY_STAGE, record_pipeline
from jobs.spec.mask import NO_MASK
from jobs.spec.models import StreamSpec
from jobs.task.plan import Tally
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


@dataclass(slots=True)
class QueueResults:
    """What was written for each target, and counted per partition of the queue."""

    rows: list[DataFile] = field(default_factory=list)
    letters: list[DataFile] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Looked:
    """What becomes of the records of a lot.

    Attributes:
        rows: Those that land, in the table's columns.
        failures: Of those that become letters, by their places in the lot.
    """

    partition: TopicPartition
    lot: Lot
    rows: pa.RecordBatch
    failures: list[Failure]
    counts: QueueCounts


class QueueTask:
    """Takes batches of a queue.

    Args:
        spec: The stream, as its file has it.
        corrected: With the correction, if there is one.
        reader: Of the topic.

    Attributes:
        size: How many records the next ranges may have.
    """

    def __init__(self, spec: StreamSpec, corrected: StreamSpec, reader: TopicReader) -> None:
        self._spec: StreamSpec = spec
        self._corrected: StreamSpec = corrected
        self._reader: TopicReader = reader
        self.size: QueueSize = QueueSize()

    def run(
        self,
        ranges: Ranges,
        sink: Table,
        letters: Table,
        needs: Mapping[str, Need],
        *,
        first_seen: datetime,
        file_prefix: str,
    ) -> tuple[QueueResults, QueueCounts]:
        """Read the ranges and write what lands and what does not; nothing is committed.

        Args:
            needs: Of `sink` and `letters`: what each has already.
        """
        rows_to = TargetWriter(sink.metadata, sink.io, file_prefix=file_prefix)
        letters_to = TargetWriter(letters.metadata, letters.io, file_prefix=file_prefix)
        results, counts = QueueResults(), QueueCounts()
        try:
            for lot in self.look(ranges, sink, letters, needs):
                if lot.rows.num_rows:
                    rows_to.add(lot.rows)
                if lot.failures:
                    letters_to.write(self._letters(lot.lot, lot.failures, first_seen))
                results.tallies.append(_tally(lot, self._spec))
                counts += lot.counts
            results.rows, results.letters = rows_to.close(), letters_to.close()
        except BaseException:
            rows_to.abort()
            letters_to.abort()
            raise
        return results, counts

    def look(
        self, ranges: Ranges, sink: Table, letters: Table, needs: Mapping[str, Need] | None = None
    ) -> Iterator[Looked]:
        """Read the ranges, and tell what becomes of their records; nothing is written.

        Args:
            needs: Of `sink` and `letters`: what each has already; without it, nothing of the ranges.
        """
        pipeline = record_pipeline(self._corrected, sink)
        quote = self._spec.errors.mask == NO_MASK
        read = [
            (partition, lot_of(messages, quote=quote))
            for partition, range_ in sorted(ranges.items())
            if range_.end > range_.start
            for messages in self._reader.read(partition, range_)
        ]
        records = [lot.records for _, lot in read]
        self.size.learn(sum(each.num_rows for each in records), sum(each.nbytes for each in records))
        for partition, lot, known, left in with_known(read, self._spec, sink, letters):
            tried = pipeline.run(lot.records)
            refused = known | lot.lacking
            lands = ~refused[tried.positions] & _wanted(needs, "sink", partition, lot.queue[tried.positions])
            empty = set(tried.dropped)
            failures = [each for each in tried.failures if not refused[each.row]]
            failures += [_lacking(int(row)) for row in np.flatnonzero(lot.lacking & ~known) if row not in empty]
            failures = [
                _with_reason(each, lot.reasons[each.row])
                for each in failures
                if _wanted(needs, "letters", partition, lot.queue[[each.row]])[0]
            ]
            counts = QueueCounts(
                read=lot.records.num_rows,
                landed=int(lands.sum()),
                dead=len(failures),
                known=int((known & ~left).sum()),
                tombstones=int((~known[tried.dropped]).sum()),
                without_coordinates=sum(failure.error_class == NO_COORDINATES for failure in failures),
                left=int(left.sum()),
            )
            yield Looked(partition, lot, tried.rows.filter(pa.array(lands)), failures, counts)

    def _letters(self, lot: Lot, failures: list[Failure], first_seen: datetime) -> pa.RecordBatch:
        failures = sorted(failures, key=lambda failure: failure.row)
        return dead_letter_rows(
            lot.records.take(pa.array([failure.row for failure in failures])),
            failures,
            stream=self._spec.stream,
            config_hash=self._corrected.config_hash,
            # They number the batches of the stream's own driver, which the topic of the letters follows.
            batch_id=None,
            epoch=None,
            first_seen=first_seen,
            mask=self._spec.errors.mask,
            rows=self._spec.resolved.schema,
        )


def _lacking(row: int) -> Failure:
    message = "the headers do not say which record it was: it stands at the coordinates that it has in the queue"
    return Failure(row, REPLAY_STAGE, NO_COORDINATES, message, None)


def _with_reason(failure: Failure, reason: str | None) -> Failure:
    return failure if reason is None else failure.saying(f"{failure.message} (Kafka Connect: {reason})")


def _tally(looked: Looked, spec: StreamSpec) -> Tally:
    counts = looked.counts
    tally = Tally(looked.partition.topic, looked.partition.partition, read=counts.read)
    tally.landed, tally.dead, tally.tombstones = counts.landed, counts.dead, counts.tombstones
    tally.rows = {spec.table.name: counts.landed, spec.dead_letter_table: counts.dead}
    return tally


def _wanted(
    needs: Mapping[str, Need] | None, target: str, partition: TopicPartition, offsets: np.ndarray
) -> np.ndarray:
    """Which records of a partition of the queue a target lacks."""
    if needs is None:
        return np.ones(len(offsets), dtype=bool)
    need = needs[target]
    if partition in need.skip:
        return np.zeros(len(offsets), dtype=bool)
    return offsets >= need.floors.get(partition, 0)


FIRST_RECORDS = 2_000
MAX_RECORDS = 20_000
_GROWTH = 4


class QueueSize:
    """Learns from each batch how many records the next one may have, to hold about `MAX_BYTES`."""

    def __init__(self) -> None:
        self.most: int = FIRST_RECORDS

    def learn(self, records: int, size: int) -> None:
        """A batch held so many records, of so many bytes in memory together."""
        if records:
            average = max(1, size // records)
            self.most = max(1, min(MAX_RECORDS, self.most * _GROWTH, MAX_BYTES // average))


def with_known(
    read: list[tuple[TopicPartition, Lot]], spec: StreamSpec, sink: Table, letters: Table
) -> Iterator[tuple[TopicPartition, Lot, np.ndarray, np.ndarray]]:
    """Each lot with two masks: of the records that are not to be taken, and of those that the stream reads itself.

    Not taken are those as well that stand in a table already or came earlier in the batch. The time is left aside: the
    queue's topic may have stamped its own.

    Raises:
        FrazilError: The stream reads a topic that records come from, and has never run.
    """
    if not read:
        return
    (together,) = pa.Table.from_batches([lot.records for _, lot in read]).combine_chunks().to_batches()
    places = (together.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    is_left = _is_left(spec, sink, letters)
    left = np.array([is_left(*place) for place in zip(*places, strict=True)], dtype=bool)
    known = left | (first_of(together, by_time=False) != np.arange(together.num_rows))
    known |= standing(sink, together, by_time=False)
    known |= standing(letters, together, columns=LETTER_COLUMNS, by_time=False)
    at = 0
    for partition, lot in read:
        part = slice(at, at + lot.records.num_rows)
        yield partition, lot, known[part], left[part]
        at = part.stop


def _is_left(spec: StreamSpec, sink: Table, letters: Table) -> Callable[[str, int, int], bool]:
    """Tells which records the stream reads by itself: those of its topics that its tables are not complete with."""
    stamps = {
        spec.table.name: history(sink.metadata, spec.stream).newest,
        spec.dead_letter_table: history(letters.metadata, spec.stream).newest,
    }
    stands = restart_positions(target_positions(stamps, spec.coordinator))
    began = any(stamps.values())

    def left(topic: str, partition: int, offset: int) -> bool:
        if not spec.source.reads(topic):
            return False
        if not began:
            raise FrazilError(
                f"stream {spec.stream} reads topic {topic}, where records of the queue come from, and has never "
                "run: nobody can tell which of them it will read itself. Nothing of the batch is committed.",
                fix=f"frazil run {spec.stream}, then run this again",
            )
        return offset >= stands.get(TopicPartition(topic, partition), 0)

    return left
