"""Publisher of a stream's dead letters to a topic; the dead-letter table is the source of truth.

Dead letters go to the topic in Kafka transactions. Each transaction also commits the stream's position to a consumer
group of the stream's own. A new publisher first takes the transactional id over, which ends its predecessor's open
transaction, and *then* reads the position. So a `read_committed` reader gets each dead letter once, whatever is killed,
and however many publishers run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException
from pyiceberg.table import Table

from jobs.base.failpoints import step
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.error_handling import DeadLetterTopic
from jobs.streaming.dead_letter_publisher.position import (
    OutboxPosition,
    PositionStore,
    count_unpublished,
    letter_chunks,
    next_window,
    refuse_altered,
)
from jobs.streaming.dead_letter_publisher.topic import OutboxError, TopicCluster
from jobs.streaming.dead_letter_publisher.transactions import Transactions
from jobs.tables.commit.history.stamp_history import greatest_epoch
from jobs.tables.dead_letter_table.kafka_record import KafkaRecord, RecordLimits, connect_record

log = logging.getLogger(__name__)

GROUP = "frazil-dead-letters-"
# Kafka forgets the offsets of an empty group some days after the last commit.
REFRESH_SECONDS = 3600.0


def outbox_group(stream: str) -> str:
    """Consumer group, and transactional id, of the publisher of a stream's dead letters."""
    return GROUP + stream


class Outbox:
    """Publisher of one stream's dead letters to a topic. For one thread.

    Args:
        kafka: The cluster of the topic, see `cluster_of`.
        load: Loads the current dead-letter table.
        store: The stream's own record of its position.
        epoch: The driver's epoch. At the first start, dead letters of earlier epochs count as published if `publish` is
            `new`.
        check: Called before anything is committed; raises if this process has lost the stream.
    """

    def __init__(
        self,
        stream: str,
        table_name: str,
        topic: DeadLetterTopic,
        kafka: KafkaSettings,
        load: Callable[[], Table],
        store: PositionStore,
        epoch: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.waiting: int | None = None
        self._stream: str = stream
        self._table_name: str = table_name
        self._topic: DeadLetterTopic = topic
        self._kafka: KafkaSettings = kafka
        self._load: Callable[[], Table] = load
        self._store: PositionStore = store
        self._epoch: int = epoch
        self._check: Callable[[], None] = check
        self._transactions: Transactions | None = None
        self._limits: RecordLimits = RecordLimits()
        # Recorded before this driver writes to the table, and even if the cluster does not answer.
        self._position: OutboxPosition = store.begin(
            OutboxPosition.before_epoch(epoch if topic.publish == "new" else 1)
        )

    def publish(
        self, progress: Callable[[int], None] = lambda waiting: None, go_on: Callable[[], bool] = lambda: True
    ) -> int:
        """Publish the dead letters that are in the table and not yet published.

        Args:
            progress: Called after each transaction with the number of waiting dead letters.
            go_on: Called after each transaction; False ends the call.

        Returns:
            Number of published dead letters.

        Raises:
            OutboxError, FrazilError: The next call publishes the rest.
        """
        published = 0
        try:
            transactions = self._ready()
            table = self._load()
            refuse_altered(table, self._table_name)
            self._follow_the_table(table, transactions)
            while True:
                window = next_window(table, self._stream, self._position)
                waiting = self.waiting = window.total
                if not waiting:
                    if time.monotonic() - transactions.committed_at > REFRESH_SECONDS:
                        self._commit_position(transactions, self._position)
                    progress(0)
                    return published
                for last, letters in letter_chunks(table, self._stream, self._position, window):
                    through = replace(OutboxPosition.through(last), table_uuid=self._position.table_uuid)
                    self._send(transactions, letters, through)
                    self._position = through
                    self._store.keep(through)
                    published += letters.num_rows
                    waiting -= letters.num_rows
                    self.waiting = waiting
                    progress(waiting)
                    if not go_on():
                        return published
        except BaseException as problem:
            # After any error the next call begins with Kafka's position.
            self.close()
            if isinstance(problem, KafkaException):
                raise OutboxError(f"Kafka: {problem.args[0].str()}") from problem
            raise

    def count(self) -> int:
        """Number of waiting dead letters, as far as known without the cluster; reads the table."""
        table = self._load()
        refuse_altered(table, self._table_name)
        self.waiting = count_unpublished(table, self._stream, self._position.in_table(str(table.metadata.table_uuid)))
        return self.waiting

    def close(self) -> None:
        """Close the connection, which aborts an open transaction."""
        if self._transactions:
            self._transactions.close()
        self._transactions = None

    def _ready(self) -> Transactions:
        """Transactions of the stream's dead letters, taken over from a former publisher."""
        if self._transactions is None:
            self._check()
            cluster, group = TopicCluster(self._kafka, self._topic, self._stream), outbox_group(self._stream)
            self._limits = cluster.limits()
            transactions = Transactions(cluster, group, self._topic.name, self._limits.max_bytes, self._check)
            self._transactions = transactions
            committed = transactions.take_over()
            if committed is None:
                log.info("group %s has no position; it goes on at %s", group, self._position)
                self._commit_position(transactions, self._position)
            else:
                self._position = OutboxPosition.from_group(*committed)
                self._store.keep(self._position)
        return self._transactions

    def _send(self, transactions: Transactions, letters: pa.Table, through: OutboxPosition) -> None:
        """Publish dead letters, and the position `through`, in one transaction."""
        step("outbox_before_produce")
        transactions.begin()
        now_ms = time.time_ns() // 1_000_000
        for letter in letters.to_pylist():
            transactions.produce(self._record(letter, now_ms))
        transactions.deliver()
        transactions.offer(through.offset, through.metadata(self._table_name))
        step("outbox_before_commit")
        transactions.commit()
        step("outbox_after_commit")

    def _record(self, letter: dict[str, Any], now_ms: int) -> KafkaRecord:
        record = connect_record(letter, self._table_name, self._limits, now_ms)
        if record is None:
            raise OutboxError(
                f"topic {self._topic.name} takes {self._limits.max_bytes} bytes, and not even the reasons of the dead "
                f"letter {letter['topic']}-{letter['partition']} offset {letter['offset']} fit in.",
                fix=f"raise max.message.bytes of topic {self._topic.name}",
                lasting=True,
            )
        return record

    def _commit_position(self, transactions: Transactions, position: OutboxPosition) -> None:
        """Commit a position without dead letters: because Kafka has none yet, or before it forgets it."""
        transactions.begin()
        transactions.offer(position.offset, position.metadata(self._table_name))
        transactions.commit()

    def _follow_the_table(self, table: Table, transactions: Transactions) -> None:
        """Begin again if the table or the stream's state was recreated. Otherwise epochs only grow."""
        newest = greatest_epoch(table.metadata, self._stream)
        if newest > self._epoch:
            raise OutboxError(f"stream {self._stream} was taken over by a driver with epoch {newest}", lasting=True)
        uuid = str(table.metadata.table_uuid)
        position = self._position.in_table(uuid)
        if position.epoch > newest:
            position = replace(OutboxPosition.before_epoch(1), table_uuid=uuid)
        if position == self._position:
            return
        if position.offset < self._position.offset:
            log.warning(
                "the dead letters of stream %s are published up to epoch %d, batch %d of a table that is not %s as "
                "it is now, because it was recreated: all of its dead letters are published",
                self._stream,
                self._position.epoch,
                self._position.batch,
                self._table_name,
            )
        self._commit_position(transactions, position)
        self._position = position
        self._store.keep(position)
