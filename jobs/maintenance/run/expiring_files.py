"""Expiring files: the data files of a changelog that may go by age, and the offsets behind which all changes exist.

Changes of one key may be in several partitions, such as after a topic got more of them, and only Kafka's time compares
partitions. So one time holds for all partitions, through which changes are removed: no key loses a later change while
an earlier one counts. Changes that a mirror lacks, or that a dead letter may bring, are not older.
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
    """Dead letters that may be replayed.

    Attributes:
        offsets: Least offset by partition.
        times: Least Kafka time by topic, in µs since 1970, as far as known.
    """

    offsets: Positions = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)


def waiting_letters(table: Table, stream: str) -> WaitingLetters:
    """Dead letters of a stream that may be replayed.

    Args:
        table: Dead-letter table.

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
    """Those that may be replayed; times in µs since 1970, as Python lacks some of their years."""
    names = batch.schema.names
    if "state" in names:
        batch = batch.filter(pc.invert(pc.is_in(pc.fill_null(batch["state"], "new"), pa.array(_DONE))))
    if "timestamp" in names:
        micros = batch["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        batch = batch.set_column(names.index("timestamp"), "timestamp", micros)
    return batch


@dataclass(frozen=True, slots=True)
class Reads:
    """Cache of reads between attempts: otherwise a stream that commits often would win each time.

    Attributes:
        manifests: Content of manifests by path.
        changes: Changes of files, by path and limits.
        letters: Waiting dead letters by snapshot of their table.
    """

    manifests: dict[str, list[LandedFile]] = field(default_factory=dict)
    changes: dict[tuple[str, str], FileChanges] = field(default_factory=dict)
    letters: dict[int | None, WaitingLetters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expiring:
    """What may be removed.

    Attributes:
        files: The data files.
        offsets: Offset behind the changes that are removed or no longer count, by partition.
        sequence: A mirror that has merged the changelog at this sequence number, or a later one, has them.
        held: Least time of a change that holds later ones, in µs since 1970, and the coordinates of such changes in
            words; None without any.
    """

    files: Sequence[LandedFile]
    offsets: Positions
    sequence: int
    held: tuple[int, str] | None = None


def old_files(table: Table, files: Sequence[LandedFile], timestamp: str, before: int) -> list[LandedFile]:
    """Files all of whose changes arrived in Kafka before an instant, in µs since 1970, by their bounds."""
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
    """Files to remove.

    Args:
        columns: Kafka's topic, partition, offset and time columns.
        before: Changes of this time or a later one stay, in µs since 1970.
        limits: First offset that a mirror lacks, or that may still come, by partition.
        gone: The same for topics that the stream no longer reads: their files stay, and their changes up to the time of
            removed ones no longer count.
        covered: Sequence number of the changelog that all mirrors have merged.

    Raises:
        ChangesKeptError: The times of a file's changes are unknown.
    """
    older: list[tuple[LandedFile, tuple[int, int], FileChanges]] = []
    key = str(sorted({**limits, **gone}.items()))
    for each in files:
        times = times_of(table, each.file, columns[3])
        if times is None:
            raise ChangesKeptError(
                f"Data files have no bounds of column {columns[3]}, such as those that Spark has written to a table "
                "of more than 100 columns, so the age of their changes is unknown, and all stay.",
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
            # All mirrors have the changes that no longer count, though their file may have been compacted since.
            sequence = max(sequence, min(each.sequence, covered))
    stands = {p: at for p, at in pointwise_max(offsets).items() if p in limits or p in gone}
    most = max(stands.values(), default=0)
    for each in files:
        least = least_offset(table, each.file, columns[2])
        if each.file.file_path not in paths and (least is None or least < most) and stands:
            # Changes below no longer count, however young they are.
            sequence = max(sequence, min(each.sequence, covered))
    return Expiring([each for each, _, _ in going], stands, sequence, min(beyond, default=None))
