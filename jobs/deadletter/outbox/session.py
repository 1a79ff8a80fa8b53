"""One hold on the transactional id of a stream's letters: transactions, and the position that goes with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from jobs.deadletter.connect_headers import Limits, letter_record
from jobs.deadletter.outbox.position import Published
from jobs.deadletter.outbox.topic import OutboxError, TopicCluster
from jobs.deadletter.outbox.transactions import Transactions
from jobs.steps import step

GROUP = "frazil-dead-letters-"
# Kafka forgets the offsets of a group without members some days after the last commit.
REFRESH_SECONDS = 3600.0


def group_of(stream: str) -> str:
    """The consumer group, and the transactional id, of a stream's letters."""
    return GROUP + stream


class OutboxSession:
    """One producer that takes the transactional id of a stream's letters over, and what it commits.

    Args:
        cluster: Where the topic is.
        stream: The stream's id.
        topic: The topic.
        table_name: The dead-letter table, for headers and the group's text.
        check: Called before anything is committed; raises if this process has lost the stream.

    Raises:
        OutboxError: The topic is missing, or the cluster does not answer, or refuses us.
    """

    def __init__(
        self, cluster: TopicCluster, stream: str, topic: str, table_name: str, check: Callable[[], None]
    ) -> None:
        self._topic: str = topic
        self._table_name: str = table_name
        self._limits: Limits = cluster.limits()
        self._transactions: Transactions = Transactions(cluster, group_of(stream), topic, self._limits.max_bytes, check)

    def take_over(self) -> Published | None:
        """Fence whoever published before, and read how far it came; None if nobody ever did."""
        found = self._transactions.take_over()
        return None if found is None else Published.from_group(*found)

    def send(self, letters: pa.Table, through: Published) -> None:
        """Publish letters, and that everything up to `through` is published, as one."""
        step("outbox_before_produce")
        self._transactions.begin()
        now_ms = time.time_ns() // 1_000_000
        for letter in letters.to_pylist():
            self._produce(letter, now_ms)
        self._transactions.deliver()
        self._offer(through)
        step("outbox_before_commit")
        self._transactions.commit()
        step("outbox_after_commit")

    def refresh(self, position: Published, *, now: bool = False) -> None:
        """Commit a position again that Kafka would forget otherwise."""
        if now or time.monotonic() - self._transactions.committed_at > REFRESH_SECONDS:
            self._transactions.begin()
            self._offer(position)
            self._transactions.commit()

    def close(self) -> None:
        """Abort what is open, if the cluster answers."""
        self._transactions.close()

    def _produce(self, letter: dict[str, Any], now_ms: int) -> None:
        record = letter_record(letter, self._table_name, self._limits, now_ms)
        if record is None:
            raise OutboxError(
                f"topic {self._topic} takes {self._limits.max_bytes} bytes, and not even the reasons of the dead "
                f"letter {letter['topic']}-{letter['partition']} offset {letter['offset']} fit in.",
                fix=f"raise max.message.bytes of topic {self._topic}",
                lasting=True,
            )
        self._transactions.produce(record)

    def _offer(self, position: Published) -> None:
        self._transactions.offer(position.offset, position.metadata(self._table_name))
