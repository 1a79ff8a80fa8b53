"""Expiring files: which data files of a changelog may go by age, and behind which offsets all changes are there then.

Changes of one key may be in several partitions, as where a topic got more of them, and nothing but Kafka's time tells
partitions apart. So there is one time through which changes are gone, in all partitions: of no key goes a later
change while an earlier one counts. No change is older that a mirror lacks, or that is yet to come by a letter.
"""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyarrow.compute makes its functions when it is imported.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.maintenance.run.changelog_files import (
    ChangesKeptError,
    FileChanges,
    LandedFile,
    changes_of,
    ends_through,
    least_offset,
    times_of,
)
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition, pointwise_max
from jobs.tables.dead_letter_table.reader import UnreadableDeadLettersError, read_dead_letters
from jobs.tables.dead_letter_table.table import STATES
from jobs.tables.dead_letter_table.tally import WAITING

_DONE = sorted({*STATES} - {*WAITING})


@dataclass(frozen=True, slots=True)
class WaitingLetters:
    """Letters that may be replayed.

    Attributes:
        offsets: By partition the least offset.
        times: By topic the least time in Kafka, in µs since 1970, as far as it is known.
    """

    offsets: Positions = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)


def waiting_letters(table: Table, stream: str) -> WaitingLetters:
    """The letters of a stream that may be replayed.

    Args:
        table: Of its dead letters.

    Raises:
        ChangesKeptError: Some cannot be read.
    """

    def refuse(problem: UnreadableDeadLettersError) -> None:
        raise ChangesKeptError(f"{problem.message} So all changes stay.", fix=problem.fix or "bring the file back")

    there = table.schema().column_names
    names = tuple(name for name in ("topic", "partition", "offset", "timestamp", "state") if name in there)
    offsets: dict[TopicPartition, int] = {}
    times: dict[str, int] = {}
    for batch in read_dead_letters(table, EqualTo("stream", stream), names, refuse):
        for row in _waiting(batch).to_pylist():
            partition = TopicPartition(row["topic"], row["partition"])
            offset: int = row["offset"]
            offsets[partition] = min(offset, offsets.get(partition, offset))
            came: int | None = row.get("timestamp")
            if came is not None:
                times[partition.topic] = min(came, times.get(partition.topic, came))
    return WaitingLetters(offsets, times)


def _waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those that may be replayed; times in µs since 1970, as some have a year that is none of Python's."""
    names = batch.schema.names
    if "state" in names:
        batch = batch.filter(pc.invert(pc.is_in(pc.fill_null(batch["state"], "new"), pa.array(_DONE))))
    if "timestamp" in names:
        micros = batch["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        batch = batch.set_column(names.index("timestamp"), "timestamp", micros)
    return batch


@dataclass(frozen=True, slots=True)
class Reads:
    """What was read for an attempt, for those after it: a stream that commits often would come first each time.

    Attributes:
        manifests: What they list, by path.
        changes: Of files, by path and the limits that they were read with.
        letters: By snapshot of the table of dead letters.
    """

    manifests: dict[str, list[LandedFile]] = field(default_factory=dict)
    changes: dict[tuple[str, str], FileChanges] = field(default_factory=dict)
    letters: dict[int | None, WaitingLetters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expiring:
    """What may go.

    Attributes:
        files: The data files.
        offsets: By partition, behind the changes that are gone or count no more.
        sequence: A mirror has them that has merged the changelog of this sequence number, or a later one.
        held: The least time of a change that holds what is not older, in µs since 1970, and where such changes are, in
            words; None where none does.
    """

    files: Sequence[LandedFile]
    offsets: Positions
    sequence: int
    held: tuple[int, str] | None = None


def old_files(table: Table, files: Sequence[LandedFile], timestamp: str, before: int) -> list[LandedFile]:
    """Those all of whose changes came to Kafka before an instant, in µs since 1970, by their bounds."""
    timed = ((each, times_of(table, each.file, timestamp)) for each in files)
    return [each for each, times in timed if times is not None and times[1] < before]


def expiring_files(
    table: Table,
    files: Sequence[LandedFile],
    columns: tuple[str, str, str, str],
    before: int,
    limits: Positions,
    *,
    gone: Positions,
    covered: int,
    reads: Reads,
) -> Expiring:
    """Which files go.

    Args:
        columns: Those of Kafka's topic, partition, offset and time.
        before: Changes of this time or a later one stay, in µs since 1970.
        limits: By partition, the offset from which on a mirror lacks changes, or one may come yet.
        gone: Likewise of topics that the stream does not read any more: their files stay, and changes of theirs up to
            the time of those that go count no more either.
        covered: The sequence number of the changelog that all mirrors have merged.

    Raises:
        ChangesKeptError: The times of a file's changes are not known.
    """
    older: list[tuple[LandedFile, tuple[int, int], FileChanges]] = []
    key = str(sorted({**limits, **gone}.items()))
    for each in files:
        times = times_of(table, each.file, columns[3])
        if times is None:
            raise ChangesKeptError(
                f"Data files have no bounds of column {columns[3]}, such as those that Spark has written of a table of "
                "more than 100 columns, so how old their changes are is not known, and all stay.",
                fix=f"set the table's property write.metadata.metrics.column.{columns[3]} to full, and compact it",
            )
        if times[0] < before:
            path = each.file.file_path
            if (path, key) not in reads.changes:
                found = changes_of(table, each.file, columns, times, {**gone, **limits})
                reads.changes[path, key] = found
            older.append((each, times, reads.changes[path, key]))
    beyond = [(found.beyond, found.at) for _, _, found in older if found.beyond is not None and found.beyond < before]
    until = min([before, *(at for at, _ in beyond)])
    going = [
        (each, times, found)
        for each, times, found in older
        if times[1] < until and each.sequence <= covered and found.ends and found.ends.keys() <= limits.keys()
    ]
    paths = {each.file.file_path for each, _, _ in going}
    through = max((times[1] for _, times, _ in going), default=None)
    offsets = [found.ends for _, _, found in going]
    sequence = max((each.sequence for each, _, _ in going), default=0)
    for each, times, _ in older:
        if each.file.file_path not in paths and through is not None and times[0] <= through:
            offsets.append(ends_through(table, each.file, columns, through))
            # All mirrors have what counts no more, though its file may have been compacted since.
            sequence = max(sequence, min(each.sequence, covered))
    stands = {p: at for p, at in pointwise_max(offsets).items() if p in limits or p in gone}
    most = max(stands.values(), default=0)
    for each in files:
        least = least_offset(table, each.file, columns[2])
        if each.file.file_path not in paths and (least is None or least < most) and stands:
            # What is below counts no more, however young it is.
            sequence = max(sequence, min(each.sequence, covered))
    return Expiring([each for each, _, _ in going], stands, sequence, min(beyond, default=None))
