"""Range reader: the records of a task's offset ranges, read from Kafka inside the task.

A record costs less than half here of what it costs by way of Spark's source: there it becomes an object of Java's
client, two rows of Spark's and a row of Arrow, and Spark asks the broker for both ends of the log after every poll and
Arrow for its size after every row. Here it becomes one message of librdkafka's, whose value is copied into Arrow; keys
and headers go there only for columns of the stream's table and of records that fail (`python -m bench.stages` measures
both).
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
"""Of values in a block, beyond which it takes no more; what is decompressed at once may come on top."""

_AT_ONCE = 1_000
_POLL_SECONDS = 0.5

# One per worker process, which Spark keeps for the next task: its connections stay as well. A process in which a task
# failed is not kept.
_kept: dict[tuple[tuple[str, Any], ...], MonitoredConsumer] = {}


def read_split(
    options: Mapping[str, Any],
    pieces: Iterable[PartitionRange],
    timeout: float,
    parts: frozenset[str] = frozenset(),
) -> Iterator[FetchedBlock]:
    """All records of a split that the log has, piece by piece, in blocks bounded by number and by bytes.

    Args:
        options: As `consumer_options` makes them.
        pieces: The split.
        timeout: Seconds without any progress after which Kafka counts as unavailable; more than a request may take.
        parts: What is fetched of a record beyond its value and coordinates, see `fetched_block`.

    Raises:
        LostOffsetsError: The log begins behind the offset to be read.
        ReadError: The brokers refuse, or a record is damaged.
        KafkaUnavailableError: Nothing came for so long.
    """
    key = tuple(sorted(options.items()))
    client = _kept.pop(key, None) or MonitoredConsumer(options)
    for bundle in bundles(pieces):
        yield from _Reading(client, bundle, timeout, parts).blocks()
    _kept.clear()
    _kept[key] = client


def bundles(pieces: Iterable[PartitionRange]) -> Iterator[list[PartitionRange]]:
    """Ranges that are read at once, each of another partition: as many as fill a block, or one that is larger.

    An assignment and a request that waits for the one before cost some milliseconds: as long as a thousand records.
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
    """How far an offset range has been read."""

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
        # Those that are not read to their ends; a dictionary for its order.
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
                    # Nothing of what follows is fetched while the last block is at work.
                    self._consumer.unassign()
                for source, messages in fetched.items():
                    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
                    yield fetched_block(source, messages, offsets, self._parts)
        except KafkaException as problem:
            raise self._unreadable(problem.args[0].str()) from None

    def _next_records(self) -> dict[TopicPartition, list[Message]]:
        """The next records by partition: as many as a block may hold in all, or all up to the ends."""
        fetched: dict[TopicPartition, list[Message]] = {}
        count, size, last, furthest = 0, 0, time.monotonic(), -1
        while self._open and count < MOST_RECORDS and size < MOST_BYTES:
            # Without waiting it takes what is there already, which librdkafka bounds by bytes.
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
        """How far the client has fetched of what is open, all in all; grows also where only aborted records come."""
        return sum(max(self._ranges[source].at, self._client.fetched.get(source, 0)) for source in self._open)

    def _records(self, messages: list[Message]) -> Iterator[tuple[TopicPartition, list[Message]]]:
        """Those that belong to a piece; moves on behind them, and behind what is not a record."""
        events: list[Message] = []
        if any(error is not None for error in map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if len(self._ranges) == 1 and messages and _source(messages[0]) == _source(messages[-1]):
            # No look at each: what was assigned before never comes between.
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
        """Note that a partition is read up to an offset."""
        range_ = self._ranges[source]
        self._passed += max(0, offset - range_.at)
        range_.at = max(range_.at, offset)
        if range_.at >= range_.end and source in self._open:
            del self._open[source]
            if self._open:
                # Nothing more of it is fetched while the others go on.
                self._consumer.incremental_unassign([ClientPartition(*source)])

    def _handle_event(self, event: Message) -> None:
        """Take note of what is not a record, once the records before it are counted."""
        error, source = event.error(), _source(event)
        # Others are of an assignment before this one, or of a group's coordinator, which nobody needs here.
        if error is None or source not in self._open:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._advance(source, event.offset() or 0)
        elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise LostOffsetsError(
                f"topic {source.topic}, partition {source.partition}: the log does not have offset "
                f"{self._ranges[source].at} any more: {error.str()}",
                fix="start the stream again, which says what is missing and how to go on",
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
        """The place that an error names: the first that is not read to its end, if none is given."""
        source = source or next(iter(self._open or self._ranges))
        at = self._ranges[source].at
        return f"topic {source.topic}, partition {source.partition} cannot be read at offset {at}"


def _source(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", -1 if (number := message.partition()) is None else number)
