"""Results of a batch: files and counts of its tasks, and what they mean for the stamp."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from pyiceberg.manifest import DataFile

from jobs.config.values.targets import TargetSpec
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.records.schema.needs import RecordNeed
from jobs.streaming.driver.context.unknown_fields import UnknownField
from jobs.streaming.task.needs import UnnamedTable
from jobs.streaming.task.tally import MOST_CAUSES, Cause, Tally
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import unaccounted
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventCounts
from jobs.tables.commit.stamp.offsets import Positions, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import (
    Counts,
    LastRead,
    LastReads,
    PartitionCounts,
)
from jobs.tables.write.file_access import delete_unreferenced


@dataclass(frozen=True, slots=True)
class TaskResults:
    """Files of a batch's tasks, by target, and their counts, by slice.

    Attributes:
        needs: Changes of tables that records need, by table.
        schemas: Writer schemas that tasks got from the registry.
        unmet: Ids of writer schemas that the registry did not know.
        tables: Tables that records wait for, in the order of the records.
        undecided: Whether a task has left its records undecided: the tasks have to run again, and nothing of this is
            committed.
    """

    files: dict[str, list[DataFile]]
    tallies: list[Tally]
    needs: Mapping[str, tuple[RecordNeed, ...]] = field(default_factory=dict)
    schemas: dict[SchemaId, RegistrySchema] = field(default_factory=dict)
    undecided: bool = False
    unmet: frozenset[SchemaId] = frozenset()
    tables: tuple[UnnamedTable, ...] = ()

    def counts(self) -> Counts:
        """The sum over all slices.

        Raises:
            AssertionError: The results are undecided; no stamp is made from these counts.
        """
        if self.undecided:
            raise AssertionError("results that are undecided are dropped before anything is counted")
        return sum((tally.counts for tally in self.tallies), Counts())

    def refuse_unaccounted(self, stream: str, ranges: Ranges, position: Positions, coordinator: str) -> None:
        """Raise if a batch does not add up: each record that was read landed, failed, is a tombstone or was filtered.

        Args:
            position: Position of the coordinator.
            coordinator: Name of the coordinator.
        """
        read: dict[TopicPartition, int] = {}
        for tally in self.tallies:
            partition = TopicPartition(tally.topic, tally.partition)
            read[partition] = read.get(partition, 0) + tally.read
            parts = (tally.landed, tally.dead, tally.tombstones, tally.filtered)
            if tally.read != sum(parts):
                landed, dead, tombstones, filtered = parts
                raise unaccounted(
                    stream,
                    f"of {tally.read:,} records read from {partition}, {landed:,} landed, {dead:,} are dead letters, "
                    f"{tombstones:,} are tombstones and {filtered:,} were filtered, which is {sum(parts):,} in all",
                )
            if tally.landed - tally.elsewhere != tally.rows.get(coordinator, 0):
                raise unaccounted(
                    stream,
                    f"{tally.landed - tally.elsewhere:,} records of {partition} landed in {coordinator} with "
                    f"{tally.rows.get(coordinator, 0):,} rows",
                )
        for partition, count in read.items():
            start, end = ranges[partition]
            if count > (most := max(0, end - max(start, position.get(partition, start)))):
                raise unaccounted(stream, f"{count:,} records were read from {partition}, whose range has {most:,}")

    def refuse_unwritten(self, stream: str) -> None:
        """Raise if a batch's files do not hold the counted rows, before anything of it is committed.

        Raises:
            UnaccountedRecordsError: A table's files have more or fewer rows.
        """
        rows, written = dict.fromkeys(self.files, 0), self.rows()
        for tally in self.tallies:
            for name, count in tally.rows.items():
                rows[name] = rows.get(name, 0) + count
        for name, count in rows.items():
            if count != written.get(name, 0):
                raise unaccounted(stream, f"{count:,} rows for {name} are in files with {written.get(name, 0):,} rows")

    def fetched(self) -> tuple[int, int]:
        """Number and bytes of the records that the tasks have read, for whichever target."""
        return sum(tally.fetched for tally in self.tallies), sum(tally.fetched_bytes for tally in self.tallies)

    def parts(self, ranges: Ranges, position: Positions, target: TargetSpec) -> dict[TopicPartition, PartitionCounts]:
        """Counts for a target, by partition of which it lacks a part of the batch.

        Args:
            target: The target. The coordinator's counts cover all records that it lacked, the others' the rows sent to
                them.
        """
        counted: dict[TopicPartition, Counts] = {}
        elsewhere: dict[TopicPartition, int] = {}
        for tally in self.tallies:
            partition = TopicPartition(tally.topic, tally.partition)
            counts = tally.counts if target.coordinator else Counts.of_rows(tally.rows.get(target.name, 0), target.role)
            counted[partition] = counted.get(partition, Counts()) + counts
            if target.coordinator:
                elsewhere[partition] = elsewhere.get(partition, 0) + tally.elsewhere
        parts: dict[TopicPartition, PartitionCounts] = {}
        for partition, (start, end) in ranges.items():
            stood = max(start, position.get(partition, start))
            if stood < end:
                parts[partition] = PartitionCounts(stood, counted.get(partition, Counts()), elsewhere.get(partition, 0))
        return parts

    def marks(self, end: Positions, before: LastReads) -> dict[TopicPartition, LastRead]:
        """Last read record of each partition, for the position `end`.

        Args:
            end: Next offsets after the batch.
            before: Last reads of the batches before, which stay if this batch read no record of the partition.
        """
        newest = dict(before)
        for tally in self.tallies:
            partition = TopicPartition(tally.topic, tally.partition)
            mark = _mark(tally)
            if mark and (partition not in newest or newest[partition].after < mark.after):
                newest[partition] = mark
        return {
            partition: mark._replace(position=end[partition])
            for partition, mark in newest.items()
            if mark.after <= end.get(partition, -1)
        }

    def piece_marks(self, partitions: Collection[TopicPartition]) -> list[dict[TopicPartition, LastRead]]:
        """Last record of every piece of some partitions, as maps that contain each partition once."""
        of: dict[TopicPartition, list[tuple[TopicPartition, LastRead]]] = {}
        for tally in self.tallies:
            partition, mark = TopicPartition(tally.topic, tally.partition), _mark(tally)
            if mark and partition in partitions:
                of.setdefault(partition, []).append((partition, mark))
        return [dict(filter(None, together)) for together in zip_longest(*of.values())]

    def events(self) -> EventCounts:
        """Event times of the rows, over all slices."""
        return sum((tally.events for tally in self.tallies), NO_EVENTS)

    def greatest_events(self) -> dict[TopicPartition, int]:
        """Greatest event time of each partition that has any; milliseconds since 1970."""
        found: dict[TopicPartition, int] = {}
        for tally in self.tallies:
            if (at := tally.greatest_event_ms) is not None:
                partition = TopicPartition(tally.topic, tally.partition)
                found[partition] = max(at, found.get(partition, at))
        return found

    def rows(self) -> dict[str, int]:
        """Rows by target, for targets that received any."""
        return {name: sum(file.record_count for file in files) for name, files in self.files.items() if files}

    def letters(self, targets: Iterable[TargetSpec]) -> int:
        """Rows written to the dead-letter tables among the targets."""
        return sum(self.rows().get(each.name, 0) for each in targets if each.role == "dead_letters")

    def summed(self, of: Callable[[Tally], dict[str, int]]) -> dict[str, int]:
        """A map of counts, summed over all slices."""
        total: dict[str, int] = {}
        for tally in self.tallies:
            for key, count in of(tally).items():
                total[key] = total.get(key, 0) + count
        return total

    def causes(self) -> dict[str, Cause]:
        """Causes of failed records, over all slices, the most frequent first."""
        return most_frequent(tally.causes for tally in self.tallies)

    def unknown_fields(self) -> dict[str, UnknownField]:
        """Keys that the schema does not declare, over all slices, with the first example of each."""
        total: dict[str, UnknownField] = {}
        for tally in self.tallies:
            for path, count in tally.unknown_fields.items():
                found = UnknownField(count)
                if (example := tally.unknown_examples.get(path)) is not None:
                    where = (tally.topic, tally.partition, example.offset)
                    found = UnknownField(count, *where, example.within, example.column)
                total[path] = total[path].plus(found) if path in total else found
        return total


def most_frequent(counted: Iterable[Mapping[str, Cause]], most: int = MOST_CAUSES) -> dict[str, Cause]:
    """Causes of failure over several results, the most frequent first, at most `most`; each with its first example."""
    total: dict[str, Cause] = {}
    for causes in counted:
        for key, cause in causes.items():
            known = total.get(key)
            total[key] = Cause(known.example if known else cause.example, cause.count + (known.count if known else 0))
    ordered = sorted(total.items(), key=lambda item: (-item[1].count, item[0]))
    return dict(ordered[:most])


@dataclass(frozen=True, slots=True)
class BatchDone:
    """Outcome of one batch.

    Attributes:
        counts: Counts of its records; zero if the targets had them all.
        task_seconds: Time to read, decode and write files; `commit_seconds`: from the pending record to the last
            commit.
        lag: Records per partition between the new position and the log's end; `undecided`: those of open transactions
            behind it.
        watermark_ms: The stream's watermark after the batch; None if its file has no event time.
        events: Event times of its records, and the numbers of late records by lateness.
        letters: Rows committed to the dead letters; includes those of a batch whose rows had landed before.
        warned: Landed rows that broke a rule which only warns, by rule name.
        parked: Dead letters for suspended tables, by table.
        unknown_fields: Keys that the schema does not declare, by path.
        fetched, fetched_bytes: Number and bytes of the records that its tasks have read.
    """

    batch: int
    counts: Counts
    seconds: float
    task_seconds: float
    commit_seconds: float
    lag: dict[TopicPartition, int]
    valid_through_ms: int | None
    reasons: dict[str, int] = field(default_factory=dict)
    warned: dict[str, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    unknown_fields: dict[str, UnknownField] = field(default_factory=dict)
    files: int = 0
    letters: int = 0
    causes: dict[str, Cause] = field(default_factory=dict)
    undecided: dict[TopicPartition, int] = field(default_factory=dict)
    watermark_ms: int | None = None
    events: EventCounts = NO_EVENTS
    fetched: int = 0
    fetched_bytes: int = 0

    def after(self, part: BatchDone) -> BatchDone:
        """This outcome with the files and dead letters of the batch's part that was completed before."""
        parked = {name: self.parked.get(name, 0) + part.parked.get(name, 0) for name in {*self.parked, *part.parked}}
        return replace(self, files=self.files + part.files, letters=self.letters + part.letters, parked=parked)


def drop_files(results: TaskResults, targets: Mapping[str, Target], *, keep: AbstractSet[str]) -> None:
    """Delete files in the results that no snapshot references, for all targets but those in `keep`."""
    for name, files in results.files.items():
        if name in keep:
            continue
        delete_unreferenced(targets[name].table.io, files)


def _mark(tally: Tally) -> LastRead | None:
    if tally.after is None or tally.leader_epoch is None or tally.leader_epoch < 0:
        return None
    return LastRead(tally.after, tally.after, tally.leader_epoch)
