"""Open transactions: how long their records have waited, behind which a reader of committed records waits as well."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.tables.commit.stamp.offsets import TopicPartition

if TYPE_CHECKING:
    from jobs.clients.kafka.metadata import LogEnds

# Kafka's transaction.max.timeout.ms, if nobody has changed it: by then the brokers end a transaction themselves.
HANGING_SECONDS = 900.0


@dataclass(slots=True)
class OpenTransactions:
    """Follows how long the end of what is decided has stood still while records wait behind it.

    Attributes:
        since: Per partition in which records wait, when that end was first seen where it stands; seconds since 1970.
    """

    since: dict[TopicPartition, float] = field(default_factory=dict)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _told: set[TopicPartition] = field(default_factory=set)

    def observe(self, ends: LogEnds, now: float) -> None:
        """Take note of the ends of all partitions as of now."""
        undecided = ends.undecided()
        moved = {p for p in undecided if self._ends.get(p) != ends.latest[p]}
        self.since = {p: now if p in moved else self.since.get(p, now) for p in undecided}
        self._ends = {p: ends.latest[p] for p in undecided}
        self._told &= undecided.keys() - moved

    def oldest(self) -> float | None:
        """Since when records have waited where they wait longest; None if none wait."""
        return min(self.since.values(), default=None)

    def hanging(self, now: float, longest: float = HANGING_SECONDS) -> list[TopicPartition]:
        """Partitions of which it is to be told now that a transaction hangs: each once."""
        found = sorted(p for p, at in self.since.items() if now - at >= longest and p not in self._told)
        self._told.update(found)
        return found


def find_hanging(partition: TopicPartition, bootstrap: str) -> str:
    """The command that shows the transactions which hold a partition up."""
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap} find-hanging --topic {partition.topic} "
        f"--partition {partition.partition}"
    )
