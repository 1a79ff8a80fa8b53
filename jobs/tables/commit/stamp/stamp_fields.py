"""Fields of a stamp: counts of records, an operator's decision, and the last record read of a partition."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from jobs.config.values.targets import Role
from jobs.tables.commit.stamp.offsets import Positions, Ranges, TopicPartition

AnswerName = Literal[
    "lost_offsets",
    "lost_topic",
    "recreated_topic",
    "cut_topic",
    "recreated_table",
    "rollback_keep",
    "rollback_reland",
    "reset",
    "parked",
    "unparked",
]


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stamp's counts of records by what became of them; `read = landed + dead + tombstones + filtered`."""

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
        return Counts(*map(operator.add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(operator.sub, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """A stamp's counts of what a batch did with one partition on one target.

    Attributes:
        stood: Where the target stood; it stands at the stamp's position now.
        counts: Of the records in between. On all targets but the coordinator, of the rows it received.
        elsewhere: On the coordinator of a stream with a route, landed records of which it received no row itself.
    """

    stood: int
    counts: Counts = field(default_factory=Counts)
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A stamp's field of what an operator decided of its table; see `jobs.tables.ledger.ledger_row` for what follows.

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


class LastRead(NamedTuple):
    """A stamp's field of a partition's last read record, which tells a log that goes on from one that was cut.

    Each record keeps the epoch of the leader that took it. A log that does not hold this epoch up to here has lost what
    was read, even if it has grown past the position since.

    Attributes:
        position: The stream's position that this belongs to; at any other it says nothing.
        after: The offset behind the record; below the position where only marks of transactions, aborted records, or
            holes of compaction follow.
        epoch: The leader's epoch of the record.
    """

    position: int
    after: int
    epoch: int


LastReads = Mapping[TopicPartition, LastRead]


def at_positions(reads: LastReads, position: Positions) -> dict[TopicPartition, LastRead]:
    """Those last reads of a stamp that belong to these positions."""
    return {partition: read for partition, read in reads.items() if position.get(partition) == read.position}
