"""Open transactions, and how long a reader of committed records has waited for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.tables.commit.stamp.offsets import TopicPartition

if TYPE_CHECKING:
    from jobs.clients.kafka.metadata import LogEnds

# Default of Kafka's transaction.max.timeout.ms, after which brokers end a transaction themselves.
HANGING_SECONDS = 900.0


@dataclass(slots=True)
class OpenTransactions:
    """Tracks how long the last stable offset of partitions has stood still while records wait behind it.

    Attributes:
        since: For each such partition, when its last stable offset was first seen; seconds since 1970.
    """

    since: dict[TopicPartition, float] = field(default_factory=dict)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _told: set[TopicPartition] = field(default_factory=set)

    def observe(self, ends: LogEnds, now: float) -> None:
        """Record the present ends of all partitions."""
        undecided = ends.undecided()
        moved = {p for p in undecided if self._ends.get(p) != ends.latest[p]}
        self.since = {p: now if p in moved else self.since.get(p, now) for p in undecided}
        self._ends = {p: ends.latest[p] for p in undecided}
        self._told &= undecided.keys() - moved

    def oldest(self) -> float | None:
        """Return when the longest wait began; None if no records wait."""
        return min(self.since.values(), default=None)

    def hanging(self, now: float, longest: float = HANGING_SECONDS) -> list[TopicPartition]:
        """Return partitions with a hanging transaction that were not returned before."""
        found = sorted(p for p, at in self.since.items() if now - at >= longest and p not in self._told)
        self._told.update(found)
        return found


def find_hanging(partition: TopicPartition, bootstrap: str) -> str:
    """Return the command that shows the hanging transactions of a partition."""
    return (
        f"kafka-transactions.sh --bootstrap-server {bootstrap} find-hanging --topic {partition.topic} "
        f"--partition {partition.partition}"
    )
