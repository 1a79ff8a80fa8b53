"""Range reader: the records of a task's offset ranges, read from Kafka inside the task.

A record costs less than half of what it costs with Spark's source (`python -m bench.stages` measures both). In Spark's
source, a record becomes an object of Java's client, two Spark rows and an Arrow row; after every poll Spark asks the
broker for both ends of the log, and after every row Arrow for its size. Here it becomes one message of librdkafka,
whose value is copied into Arrow. Keys and headers are copied only for columns of the table and for failed records.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from jobs.clients.kafka.consumer import LostOffsetsError, MonitoredConsumer, ReadError
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.kafka.records import FetchedBlock, fetched_block
from jobs.clients.kafka.refusals import (
    UNKNOWN_USER,
    is_refusal,
    lacks_right,
    missing_rule,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition

MOST_RECORDS = 10_000
MOST_BYTES = 16 * 1024 * 1024
"""Limit of bytes in a block's values; the batch that reaches it may exceed it."""

_AT_ONCE = 1_000
_POLL_SECONDS = 0.5

# One consumer per worker process. Spark reuses the process for the next task, so connections stay open. It does not
# reuse a process whose task failed.
_kept: dict[tuple[tuple[str, Any], ...], MonitoredConsumer] = {}


def read_split(
    options: Mapping[str, Any],
    pieces: Iterable[PartitionRange],
    timeout: float,
    parts: frozenset[str] = frozenset(),
) -> Iterator[FetchedBlock]:
    """Yield the records of a split, range by range, in blocks with a limited number of records and bytes.

    Args:
        options: Result of `consumer_options`.
        pieces: Offset ranges of the split.
        timeout: Seconds without any progress after which Kafka counts as unavailable; more than a request may take.
        parts: Parts of a record to fetch beside its value and coordinates, see `fetched_block`.

    Raises:
        LostOffsetsError: The log no longer has an offset to read.
        ReadError: The brokers refuse, or a record is damaged.
        KafkaUnavailableError: No progress within the time-out.
    """
    key = tuple(sorted(options.items()))
    client = _kept.pop(key, None) or MonitoredConsumer(options)
    for bundle in bundles(pieces):
        yield from _Reading(client, bundle, timeout, parts).blocks()
    _kept.clear()
    _kept[key] = client


def bundles(pieces: Iterable[PartitionRange]) -> Iterator[list[PartitionRange]]:
    """Group ranges of different partitions that are read at once: as many as fill a block, or one larger range.

    An assignment, and a request that waits for the one before, take some milliseconds: as long as a thousand records.
    """
    bundle: dict[TopicPartition, OffsetRange] = {}
    records = 0
    for source, range_ in pieces:
        count = range_.end - range_.start
        if bundle and (records + count > MOST_RECORDS or source in bundle):
            yield list(map(PartitionRange._make, bundle.items()))
            bundle, records = {}, 0
        bundle[source] = range_
        records += count
    if bundle:
        yield list(map(PartitionRange._make, bundle.items()))


class _Progress:
    """Progress within an offset range."""

    __slots__ = ("at", "end")

    def __init__(self, range_: OffsetRange) -> None:
        self.at: int = range_.start
        self.end: int = range_.end


class _Reading:
    def __init__(
        self, client: MonitoredConsumer, pieces: Iterable[PartitionRange], timeout: float, parts: frozenset[str]
    ) -> None:
        self._client: MonitoredConsumer = client
        self._consumer: Consumer = client.consumer
        self._ranges: dict[TopicPartition, _Progress] = {source: _Progress(range_) for source, range_ in pieces}
        # Partitions that are not read to their ends; a dictionary keeps their order.
        self._open: dict[TopicPartition, None] = {s: None for s, each in self._ranges.items() if each.at < each.end}
        self._passed: int = 0
        self._timeout: float = timeout
        self._parts: frozenset[str] = parts

    def blocks(self) -> Iterator[FetchedBlock]:
        try:
            self._client.fetched.clear()
            self._consumer.assign([ClientPartition(*source, self._ranges[source].at) for source in self._open])
            while self._open:
                fetched = self._next_records()
                if not self._open:
                    # Do not fetch beyond the ranges while the last block is processed.
                    self._consumer.unassign()
                for source, messages in fetched.items():
                    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
                    yield fetched_block(source, messages, offsets, self._parts)
        except KafkaException as problem:
            raise self._unreadable(problem.args[0].str()) from None

    def _next_records(self) -> dict[TopicPartition, list[Message]]:
        """Return the next records by partition: as many as a block may hold, or all up to the ends."""
        fetched: dict[TopicPartition, list[Message]] = {}
        count, size, last, furthest = 0, 0, time.monotonic(), -1
        while self._open and count < MOST_RECORDS and size < MOST_BYTES:
            # First take what has been fetched already, which librdkafka limits by bytes.
            room = min(_AT_ONCE, MOST_RECORDS - count)
            messages = self._consumer.consume(room, 0.0) or self._consumer.consume(1, _POLL_SECONDS)
            before = self._passed
            for source, records in self._records(messages):
                if records:
                    fetched.setdefault(source, []).extend(records)
                    count += len(records)
                    size += sum(map(len, records))
            reached = self._reached() if self._passed == before else -1
            if self._passed > before or reached > furthest:
                last, furthest = time.monotonic(), reached
                self._client.problem = None
                continue
            problem = self._client.problem
            if problem is not None and is_refusal(problem):
                raise self._unreadable(problem.str())
            if time.monotonic() - last > self._timeout:
                raise self._unavailable(problem.str() if problem else f"nothing came for {self._timeout:.0f} s")
        return fetched

    def _reached(self) -> int:
        """Return the sum of fetched offsets of open partitions; it grows even if only aborted records come."""
        return sum(max(self._ranges[source].at, self._client.fetched.get(source, 0)) for source in self._open)

    def _records(self, messages: list[Message]) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Yield the records within the ranges, by partition, and advance past them and past other events."""
        events: list[Message] = []
        if any(error is not None for error in map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if len(self._ranges) == 1 and messages and _source(messages[0]) == _source(messages[-1]):
            # All are of one partition: records of a former assignment never come in between.
            yield _source(messages[0]), self._within_range(_source(messages[0]), messages)
        else:
            for source, found in itertools.groupby(messages, _source):
                yield source, self._within_range(source, list(found))
        for event in events:
            self._handle_event(event)

    def _within_range(self, source: TopicPartition, messages: list[Message]) -> list[Message]:
        range_, newest = self._ranges.get(source), messages[-1].offset()
        if range_ is None or newest is None or (messages[0].offset() or 0) < range_.at:
            raise self._unreadable(
                f"the client gave offset {messages[0].offset()} of {source.topic}-{source.partition}"
            )
        if newest >= range_.end:
            messages = [message for message in messages if (message.offset() or 0) < range_.end]
        self._advance(source, newest + 1)
        return messages

    def _advance(self, source: TopicPartition, offset: int) -> None:
        """Record that a partition is read up to an offset."""
        range_ = self._ranges[source]
        self._passed += max(0, offset - range_.at)
        range_.at = max(range_.at, offset)
        if range_.at >= range_.end and source in self._open:
            del self._open[source]
            if self._open:
                # Stop fetching this partition while the others go on.
                self._consumer.incremental_unassign([ClientPartition(*source)])

    def _handle_event(self, event: Message) -> None:
        """Handle an end of partition or an error, after the records before it were counted."""
        error, source = event.error(), _source(event)
        # Other events belong to a former assignment, or to the group coordinator, which is not used.
        if error is None or source not in self._open:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._advance(source, event.offset() or 0)
        elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise LostOffsetsError(
                f"topic {source.topic}, partition {source.partition}: the log does not have offset "
                f"{self._ranges[source].at} any more: {error.str()}",
                fix="start the stream again, which names what is missing and how to go on",
            )
        elif lacks_right(error):
            missing, command = missing_rule(error, self._client.servers, UNKNOWN_USER, ("Read",), source.topic)
            said = f"{error.str()}: {missing}".replace("the user", "the user of kafka.security")
            raise ReadError(f"Kafka: {self._where(source)}: {said}", fix=command)
        else:
            raise self._unreadable(error.str(), source)

    def _unreadable(self, said: str, source: TopicPartition | None = None) -> ReadError:
        return ReadError(
            f"Kafka: {self._where(source)}: {said}",
            fix="check that the user may read the topic, and what the brokers' logs say of it",
        )

    def _unavailable(self, said: str) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"Kafka: {self._where()}: {said}",
            fix="check that the brokers run and can be reached from where the tasks run",
        )

    def _where(self, source: TopicPartition | None = None) -> str:
        """Return the partition and offset for an error; by default the first partition that is not read to its end."""
        source = source or next(iter(self._open or self._ranges))
        at = self._ranges[source].at
        return f"topic {source.topic}, partition {source.partition} cannot be read at offset {at}"


def _source(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", -1 if (number := message.partition()) is None else number)
