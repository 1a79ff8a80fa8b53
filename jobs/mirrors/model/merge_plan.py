"""Plan and result of a merge of new changes into a mirror, and the state that goes into its stamp.

An order token (the mirror's column `_change_order`) sorts the changes of one key. It is `GGGG.POSITION.K.OFFSET`: the
source timeline (`generation`) in four hex digits, the position in the source, 0 for a row of a snapshot that has a
position and 1 for everything else, and Kafka's offset in 16 hex digits. A source timeline is the part of a partition's
log within which positions can be compared. A position in a binlog has no row number here
(`order_token.order_positions`).

Earlier releases gave 0 to all rows of snapshots. A change's token is never below the one that they gave it, and a later
change's token is above both. So mirrors with such tokens go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.commit.stamp.offsets import TopicPartition

Deletes = Literal["hard", "soft"]
Scope = Literal["source", "key"]
"""Scope within which positions are compared: the log of a source; or a key, for row versions and without lineage."""

MOST_GENERATIONS = 16
"""Limit of timelines of a partition in a stamp, the newest ones. The mirror stops if it needs older ones."""
LAST_GENERATION = 1_000
"""Limit of timelines. No source fails over so often, so several servers write by turns. A token could hold 65,535."""
ORDER_COLUMN = "_change_order"
DELETED_COLUMN = "_change_deleted"
"""`_deleted` is a metadata column of Iceberg: Spark cannot read a table that has a column of that name."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Source timeline: a part of a partition's log within which positions can be compared.

    Attributes:
        number: Number in the mirror, greater than those of the timelines before it in this partition.
        since: First offset.
        lineage: Lineage of its positions; None if they have none.
    """

    number: int
    since: int
    lineage: str | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Progress of a mirror in one partition of the changelog's topic.

    Attributes:
        next_offset: First offset that no merge has seen.
        position: Greatest position in the present timeline; None without positions.
        at: Latest source time of a change in the present timeline that is no repeat, in µs since 1970; None if unknown.
            If times are not those of commits, another change may have the position.
        generations: Source timelines, oldest first; the last is the present one.
    """

    next_offset: int
    position: str | None
    at: int | None
    generations: tuple[Generation, ...]

    @property
    def generation(self) -> int:
        """Number of the present timeline."""
        return self.generations[-1].number

    @property
    def lineage(self) -> str | None:
        """Lineage of the present positions."""
        return self.generations[-1].lineage


@dataclass(frozen=True, slots=True)
class TruncateFloor:
    """The newest truncate of a topic's table, for a mirror with changes of this topic only: older rows are removed.

    Attributes:
        token: Order token of the truncate. Rows with a lower one are removed, whenever their change arrives.
    """

    token: str


@dataclass(frozen=True, slots=True)
class Break:
    """Point in a partition where an operator let positions start again, because the source was restored from a backup.

    Attributes:
        since: First offset.
        number: Number of the operator's answer; breaks of the same answer in other partitions share it.
    """

    since: int
    number: int


@dataclass(frozen=True, slots=True)
class MirrorState:
    """State of the log that a mirror needs for its next merge.

    Attributes:
        partitions: Progress in each partition of the changelog's topics.
        lineages: Newest timeline of each lineage, in any partition.
        floors: Newest truncate of each topic.
        breaks: Breaks of each partition, by offset; a rebuild keeps them.
        removed: Greatest order token of a change that removed a row, or would have; empty if there is none.
        recreated: Topics that were recreated or cut while an earlier release went on.
        waiting: Rows whose values an earlier release lacked; they stop the mirror.
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
        """Greatest number of a timeline of any partition or lineage; -1 if there is none."""
        numbers = [each.generation for each in self.partitions.values()]
        return max([*numbers, *self.lineages.values()], default=-1)

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """First offset of each partition that no merge has seen."""
        return {partition: each.next_offset for partition, each in self.partitions.items()}

    def to_json(self) -> dict[str, Any]:
        """Return compact JSON in a stable order, so that equal states have equal texts."""
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
        """Return the state from the result of `to_json`.

        Raises:
            KeyError, TypeError, ValueError, IndexError: The document is no result of `to_json`.
        """
        named = packed.get("lineages", [])
        partitions = {
            TopicPartition(topic, int(n)): _partition(entry, [lineage for lineage, _ in named])
            for topic, entries in packed.get("partitions", {}).items()
            for n, entry in entries.items()
        }
        # Earlier releases wrote numbers of timelines after the token.
        floors = {topic: TruncateFloor(token) for topic, (token, *_) in packed.get("floors", {}).items()}
        breaks = {
            TopicPartition(topic, n): tuple(Break(since, number) for since, number in found)
            for topic, n, *found in packed.get("breaks", [])
        }
        lineages = {lineage: newest for lineage, newest in named if newest >= 0}
        # Earlier releases wrote a mapping from topic names here; only the names count.
        removed, recreated = packed.get("removed", ""), tuple(sorted(packed.get("logs", ())))
        waiting = tuple(packed.get("waiting", ()))
        return MirrorState(partitions, lineages, floors, breaks, removed, recreated, waiting)

    def accepted(self, at: Mapping[TopicPartition, int] | None = None) -> MirrorState:
        """Return the state in which positions start again, because the source was restored from a backup.

        Args:
            at: First offset of the restored source, by partition. In other partitions positions start again with the
                next change, so that a change of the restored source is later than all before it in any partition.
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
    """Parameters of a merge, beside the tables and the files.

    Attributes:
        stream: Name of the stream, for messages.
        key: Key columns of the row; at least one.
        columns: Columns of the row that the mirror has, including the key's, in the mirror's order.
        state: State in the mirror's newest stamp.
        snapshot_id: Snapshot of the changelog that the merge reaches up to.
        deletes: Whether deleted rows are removed, or stay with `_change_deleted` true.
        where: Condition in frazil's expressions over the row's columns, which the mirror's rows fulfil.
        scope: Scope within which positions are compared.
        scattered: Whether changes of one key may be in several partitions, because records have no keys.
        coordinates: Columns of the changelog with topic, partition and offset.
        timestamp: Column of the changelog with Kafka's timestamp.
        begins: First offset of each partition from which no change has expired.
        incomplete: Whether to build the mirror from the remaining changes, with null for values that no change has.
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
    """Numbers of changes or keys in a merge.

    Attributes:
        read: Changes in the merged files.
        repeats: Changes that the source had sent before; they were left out.
        late: Changes that came after later ones of their partition, by a replay of dead letters.
        truncates: Truncates.
        upserts: Keys that were set, including those whose row in the mirror is newer.
        deletes: Keys that were deleted.
        filtered: Deleted keys whose row does not fulfil the filter.
        refolded: Keys that were collapsed from all their changes.
        too_late: Late changes from before expired ones; they were left out.
        unresolved: Values that the source left out and that no change in the changelog has; they are null.
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
    """Result of a merge.

    Attributes:
        state: State for the mirror's next stamp.
        counts: Numbers of changes and keys.
        snapshots: Ids of the snapshots that it added to the branch, oldest first, each the parent of the next. Empty if
            nothing changed; two after a truncate (truncated rows first, then the rest).
    """

    state: MirrorState
    counts: MergeCounts = field(default_factory=MergeCounts)
    snapshots: tuple[int, ...] = ()
