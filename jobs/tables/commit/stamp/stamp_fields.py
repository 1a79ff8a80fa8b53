"""Fields of a stamp: counts of records, an operator's decision, and the last record read from a partition."""

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
    """A stamp's counts of records by their fate; `read = landed + dead + tombstones + filtered`."""

    read: int = 0
    landed: int = 0
    dead: int = 0
    tombstones: int = 0
    filtered: int = 0

    @staticmethod
    def of_rows(rows: int, role: Role) -> Counts:
        """Counts of a target that is no coordinator: the rows that it was sent."""
        return Counts(read=rows, landed=rows) if role == "rows" else Counts(read=rows, dead=rows)

    def rows(self, role: Role) -> int:
        """Number of the records that are rows of a target of this role."""
        return self.landed if role == "rows" else self.dead

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(operator.add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*map(operator.sub, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """A stamp's counts of a batch, for one partition on one target.

    Attributes:
        stood: Position of the target before the batch; the stamp has the position after it.
        counts: Records in between. On all targets but the coordinator, the rows that it received.
        elsewhere: On the coordinator of a stream with a route, landed records without a row in the coordinator itself.
    """

    stood: int
    counts: Counts = field(default_factory=Counts)
    elsewhere: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """A stamp's field with an operator's decision about its table; `jobs.tables.ledger.ledger_row` has its effects.

    Attributes:
        passed: Records that the table passes over without receiving them.
        again: Records before the table's former position that are to come again.
        removed: Records whose rows a rollback took out of the table, as far as the stamps show it.
        since: After a rollback, the sequence number of the last stamp still in the table, 0 if none is. Later stamps of
            the table are void.
    """

    answer: AnswerName
    passed: Ranges = field(default_factory=dict)
    again: Ranges = field(default_factory=dict)
    removed: Ranges = field(default_factory=dict)
    since: int | None = None


class LastRead(NamedTuple):
    """A stamp's field with a partition's last read record, which shows whether a log was cut.

    Each record keeps the epoch of the leader that took it. If a log does not hold this epoch up to here, it has lost
    records that were read, even if it has grown past the position since.

    Attributes:
        position: Position of the stream that this belongs to; it does not count at any other.
        after: Offset behind the record; below the position if only transaction markers, aborted records, or holes of
            compaction follow.
        epoch: Leader epoch of the record.
    """

    position: int
    after: int
    epoch: int


LastReads = Mapping[TopicPartition, LastRead]


def at_positions(reads: LastReads, position: Positions) -> dict[TopicPartition, LastRead]:
    """Last reads of a stamp that belong to these positions."""
    return {partition: read for partition, read in reads.items() if position.get(partition) == read.position}
