"""Merge plan: what a merge of an increment into a mirror is told, and what came of it; its state goes into a stamp.

An order token (the mirror's column `_change_order`) says which of two changes of one key is the later one. It is
`GGGG.POSITION.K.OFFSET`: the generation in four hex digits, the position in the source, 0 for a row of a snapshot that
has a position and 1 for all else, Kafka's offset in 16 hex digits. A generation is the stretch of a partition's log
within which positions can be compared. A position in a binlog stands there without its row
(`order_token.order_positions`).

Earlier releases gave a 0 to all rows of snapshots. A change's token is never below the one that they gave it, and a
later change's is above both: so mirrors with their tokens go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.commit.stamp.offsets import TopicPartition

Deletes = Literal["hard", "soft"]
Scope = Literal["source", "key"]
"""What positions are compared within: the log of a source, or a key, as a row's version is, or any without lineage."""

MOST_GENERATIONS = 16
"""So many of a partition are in a stamp, the newest. What needs older ones stops the mirror."""
LAST_GENERATION = 1_000
"""No source fails over so often: several servers write by turns. A token has digits for 65,535."""
ORDER_COLUMN = "_change_order"
DELETED_COLUMN = "_change_deleted"
"""`_deleted` is a column of Iceberg's own: Spark reads no table that has one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A stretch of a partition's log within which positions can be compared.

    Attributes:
        number: The mirror's number for it, greater than that of every stretch before it in this partition.
        since: The first offset.
        lineage: What its positions belong to; None if they have none.
    """

    number: int
    since: int
    lineage: str | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How far a mirror has come in one partition of the changelog's topic.

    Attributes:
        next_offset: Changes from here on were not seen.
        position: The greatest position of the present generation; None without positions.
        at: The latest time, by the source, of a change in it that is no repeat, in µs since 1970; None if none is
            known. Where times are not those of commits, another change may have the position.
        generations: Oldest first; the last is the present one.
    """

    next_offset: int
    position: str | None
    at: int | None
    generations: tuple[Generation, ...]

    @property
    def generation(self) -> int:
        """The number of the present generation."""
        return self.generations[-1].number

    @property
    def lineage(self) -> str | None:
        """What the present positions belong to."""
        return self.generations[-1].lineage


@dataclass(frozen=True, slots=True)
class TruncateFloor:
    """The newest truncate of the tables of one topic, of which alone the mirror was: what is older is gone.

    Attributes:
        token: Rows with a lower order token go, whenever their change arrives.
    """

    token: str


@dataclass(frozen=True, slots=True)
class Break:
    """Where, by an operator's word, positions of a partition begin anew: the source was restored from a backup.

    Attributes:
        since: The first offset.
        number: The answer's; those of other partitions to the same answer have the same one.
    """

    since: int
    number: int


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a mirror has to remember of the log for its next merge.

    Attributes:
        partitions: By partition of the changelog's topics.
        lineages: By lineage, its newest generation in any partition.
        floors: By topic.
        breaks: By partition, by offset; they outlive a rebuild.
        removed: The greatest order token of a change by which a row went, or would have gone; empty without one.
        recreated: Topics that were recreated or cut, and behind which an earlier release went on.
        waiting: Rows of which an earlier release lacked values; they stop the mirror.
    """

    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    lineages: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[str, TruncateFloor] = field(default_factory=dict)
    breaks: Mapping[TopicPartition, tuple[Break, ...]] = field(default_factory=dict)
    removed: str = ""
    recreated: tuple[str, ...] = ()
    waiting: tuple[Any, ...] = ()

    @property
    def newest_generation(self) -> int:
        """The greatest number of a generation, of which a partition or a lineage knows; -1 without one."""
        numbers = [each.generation for each in self.partitions.values()]
        return max([*numbers, *self.lineages.values()], default=-1)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Changes from these offsets on were not seen."""
        return {partition: each.next_offset for partition, each in self.partitions.items()}

    def to_json(self) -> dict[str, Any]:
        """Compact and in a stable order: two equal states are the same text."""
        kept = [g for each in self.partitions.values() for g in each.generations[-MOST_GENERATIONS:]]
        named = sorted({g.lineage for g in kept if g.lineage})
        named = [*named, *sorted(set(self.lineages) - set(named))]
        number = {lineage: n for n, lineage in enumerate(named)}
        topics: dict[str, dict[str, Any]] = {}
        for partition, each in sorted(self.partitions.items()):
            newest = each.generations[-MOST_GENERATIONS:]
            generations = [[g.number, g.since, *([number[g.lineage]] if g.lineage else [])] for g in newest]
            entry = [each.next_offset, each.position, each.at, generations]
            topics.setdefault(partition.topic, {})[str(partition.partition)] = entry
        packed: dict[str, Any] = {
            "partitions": topics,
            "lineages": [[lineage, self.lineages.get(lineage, -1)] for lineage in named],
            "floors": {topic: [floor.token] for topic, floor in sorted(self.floors.items())},
            "breaks": [
                [each.topic, each.partition, *([one.since, one.number] for one in breaks)]
                for each, breaks in sorted(self.breaks.items())
            ],
            "removed": self.removed,
            "logs": [*self.recreated],
            "waiting": [*self.waiting],
        }
        return {key: value for key, value in packed.items() if value}

    @staticmethod
    def from_json(packed: Mapping[str, Any]) -> MirrorState:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, IndexError: It is not what `to_json` gives.
        """
        named = packed.get("lineages", [])
        partitions = {
            TopicPartition(topic, int(n)): _partition(entry, [lineage for lineage, _ in named])
            for topic, entries in packed.get("partitions", {}).items()
            for n, entry in entries.items()
        }
        # Earlier releases have numbers of generations behind the token.
        floors = {topic: TruncateFloor(token) for topic, (token, *_) in packed.get("floors", {}).items()}
        breaks = {
            TopicPartition(topic, n): tuple(Break(since, number) for since, number in found)
            for topic, n, *found in packed.get("breaks", [])
        }
        lineages = {lineage: newest for lineage, newest in named if newest >= 0}
        # Earlier releases have more of each topic, by its name.
        removed, recreated = packed.get("removed", ""), tuple(sorted(packed.get("logs", ())))
        waiting = tuple(packed.get("waiting", ()))
        return MirrorState(partitions, lineages, floors, breaks, removed, recreated, waiting)

    def accepted(self, at: Mapping[TopicPartition, int] | None = None) -> MirrorState:
        """The state in which positions begin anew, whatever position comes: the source was restored from a backup.

        Args:
            at: Offsets from which they do, by partition. In others they do from the next change on that comes there,
                so that a change of the restored source is later than all before it in any partition.
        """
        number = 1 + max((each.number for found in self.breaks.values() for each in found), default=0)
        begins = dict(at or {})
        for partition, state in self.partitions.items():
            ahead = any(each.since >= state.next_offset for each in self.breaks.get(partition, ()))
            if partition not in begins and not ahead:
                begins[partition] = state.next_offset
        breaks = dict(self.breaks)
        for partition, since in begins.items():
            kept = [each for each in breaks.get(partition, ()) if each.since != since]
            breaks[partition] = tuple(sorted((*kept, Break(since, number)), key=lambda each: each.since))
        return replace(self, breaks=breaks)


def _partition(entry: list[Any], named: list[str]) -> PartitionState:
    next_offset, position, at, generations = entry
    known = (Generation(number, since, named[rest[0]] if rest else None) for number, since, *rest in generations)
    return PartitionState(next_offset, position, at, tuple(known))


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge is told, beside the tables and the files.

    Attributes:
        stream: The stream's name, for messages.
        key: Columns of the row that tell its rows apart; at least one.
        columns: The row's columns that the mirror has, the key's among them, in the mirror's order.
        state: Of the mirror's newest stamp.
        snapshot_id: The changelog's snapshot that the increment reaches up to.
        deletes: Whether a deleted row goes, or stays with `_change_deleted` true.
        where: A condition in frazil's expressions over the row's columns, which the mirror's rows fulfil.
        scope: What positions are compared within.
        scattered: Whether changes of one key may be in several partitions, as records have no keys.
        coordinates: The changelog's columns of topic, partition and offset.
        timestamp: Its column of Kafka's time.
        begins: By partition, the first offset from which on all changes are there; those before it have expired.
        incomplete: Whether the mirror is made of what is left, with null for values that no change has.
    """

    stream: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    state: MirrorState
    snapshot_id: int
    deletes: Deletes = "hard"
    where: str | None = None
    scope: Scope = "source"
    scattered: bool = False
    coordinates: tuple[str, str, str] = KAFKA_COLUMNS.coordinates
    timestamp: str = KAFKA_COLUMNS.instant_coordinates[3]
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did, in numbers of changes or keys.

    Attributes:
        read: Changes in the increment's files.
        repeats: Of these, what the source had sent before, and was left out.
        late: Of these, what came behind later changes of its partition, by a replay of dead letters.
        truncates: Of these, truncates.
        upserts: Keys that were set, or would have been had the mirror not been newer.
        deletes: Keys that were deleted.
        filtered: Of these, keys whose row does not fulfil the filter.
        refolded: Keys that were folded again from the changelog.
        too_late: Of the late ones, what came from before changes that have expired, and was left out.
        unresolved: Values that the source left out and that no change in the changelog has: they are null.
    """

    read: int = 0
    repeats: int = 0
    late: int = 0
    truncates: int = 0
    upserts: int = 0
    deletes: int = 0
    filtered: int = 0
    refolded: int = 0
    unresolved: int = 0
    too_late: int = 0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge came to.

    Attributes:
        state: For the mirror's next stamp.
        counts: What it did.
        snapshots: Ids of those that it added to the branch, oldest first, each one the parent of the next. None if
            nothing changed, two after a truncate (the rows below it, then the rest).
    """

    state: MirrorState
    counts: MergeCounts = field(default_factory=MergeCounts)
    snapshots: tuple[int, ...] = ()
