"""What a stamp says of each partition: what a batch did there, and what an operator decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.spec.targets import Role

AnswerName = Literal[
    "lost_offsets",
    "lost_topic",
    "recreated_topic",
    "cut_topic",
    "recreated_table",
    "rollback_keep",
    "rollback_reland",
    "reset",
]
ANSWERS: tuple[str, ...] = get_args(AnswerName)
Ranges = Mapping[TopicPartition, OffsetRange]


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records by what became of them; `read = landed + dead + tombstones + filtered`."""

    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    filtered: int = 0

    @staticmethod
    def of_rows(rows: int, role: Role) -> Counts:
        """What is counted on a target that is no coordinator: the rows that it was sent."""
        return Counts(read=rows, landed=rows) if role == "rows" else Counts(read=rows, dead=rows)

    def rows(self, role: Role) -> int:
        """How many of the records are rows of a target of this role."""
        return self.landed if role == "rows" else self.dead

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.read + other.read,
            self.landed + other.landed,
            self.dead + other.dead,
            self.tombstones + other.tombstones,
            self.filtered + other.filtered,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.read - other.read,
            self.landed - other.landed,
            self.dead - other.dead,
            self.tombstones - other.tombstones,
            self.filtered - other.filtered,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What a batch did with one partition on one target.

    Attributes:
        stood: Where the target stood; it stands at the stamp's position now.
        counts: Of the records in between. On all targets but the coordinator, of the rows it received.
    """

    stood: int
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an operator decided, of the table that the stamp is on; see `jobs.verify.ledger_row` for what follows.

    Attributes:
        passed: Records that the table goes past without receiving them.
        again: Records behind which the table stood and which are to come again.
        removed: Records whose rows a rollback took out of the table, as far as the stamps tell.
        since: Of a rollback, the sequence number of the last stamp that is still in the table, 0 if none is: what later
            stamps said of the table is void.
    """

    answer: AnswerName
    passed: Ranges = field(default_factory=dict)
    again: Ranges = field(default_factory=dict)
    removed: Ranges = field(default_factory=dict)
    since: int | None = None


def pack_parts(parts: Mapping[TopicPartition, Part], start: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """`{topic: [entry, …]}` with the partition as index, or `{topic: {partition: entry}}` where that is shorter.

    An entry is `[landed, dead, tombstones, filtered, stood - start, read beyond their sum]` without the zeros at its
    end; of one number, the number; null for a partition that the batch had no records of.
    """
    topics: dict[str, dict[int, Any]] = {}
    for partition, part in sorted(parts.items()):
        counts = part.counts
        beyond = counts.read - counts.landed - counts.dead - counts.tombstones - counts.filtered
        stood = part.stood - start.get(partition, 0)
        entry = [counts.landed, counts.dead, counts.tombstones, counts.filtered, stood, beyond]
        while len(entry) > 1 and not entry[-1]:
            entry.pop()
        topics.setdefault(partition.topic, {})[partition.partition] = entry if len(entry) > 1 else entry[0]
    return {topic: by_number(entries) for topic, entries in topics.items()}


def unpack_parts(packed: Mapping[str, Any], start: Mapping[TopicPartition, int]) -> dict[TopicPartition, Part]:
    """The inverse of `pack_parts`."""
    parts: dict[TopicPartition, Part] = {}
    for topic, entries in packed.items():
        listed = enumerate(entries) if isinstance(entries, list) else ((int(n), e) for n, e in entries.items())
        for number, entry in listed:
            if entry is None:
                continue
            partition = TopicPartition(topic, number)
            values = [*entry] if isinstance(entry, list) else [entry]
            landed, dead, tombstones, filtered, stood, beyond = values + [0] * (6 - len(values))
            read = landed + dead + tombstones + filtered + beyond
            parts[partition] = Part(start.get(partition, 0) + stood, Counts(read, landed, dead, tombstones, filtered))
    return parts


def pack_decision(decision: Decision) -> dict[str, Any]:
    """As compact JSON."""
    packed: dict[str, Any] = {
        "answer": decision.answer,
        "passed": _pack_ranges(decision.passed),
        "again": _pack_ranges(decision.again),
        "removed": _pack_ranges(decision.removed),
    }
    packed = {key: value for key, value in packed.items() if value}
    return packed if decision.since is None else packed | {"since": decision.since}


def unpack_decision(packed: Mapping[str, Any]) -> Decision:
    """The inverse of `pack_decision`."""
    return Decision(
        packed["answer"],
        _unpack_ranges(packed.get("passed", {})),
        _unpack_ranges(packed.get("again", {})),
        _unpack_ranges(packed.get("removed", {})),
        packed.get("since"),
    )


def by_number(entries: dict[int, Any]) -> Any:
    """Entries by partition: as a list with the partition as index, or as a map where that is shorter."""
    last = max(entries)
    if len(entries) * 2 > last:
        return [entries.get(number) for number in range(last + 1)]
    return {str(number): entry for number, entry in entries.items()}


def _pack_ranges(ranges: Ranges) -> dict[str, list[list[int]]]:
    packed: dict[str, list[list[int]]] = {}
    for partition, (start, end) in sorted(ranges.items()):
        packed.setdefault(partition.topic, []).append([partition.partition, start, end])
    return packed


def _unpack_ranges(packed: Mapping[str, Any]) -> dict[TopicPartition, OffsetRange]:
    return {
        TopicPartition(topic, number): OffsetRange(start, end)
        for topic, entries in packed.items()
        for number, start, end in entries
    }
