"""Reading a slice's records from Kafka, inside the task.

A record costs less than half here of what it costs by way of Spark's source: there it becomes an object of Java's
client, two rows of Spark's and a row of Arrow, and Spark asks the broker for both ends of the log after every poll and
Arrow for its size after every row. Here it becomes one message of librdkafka's, whose value is copied into Arrow; keys
and headers go there only of those that fail (`python -m bench.stages` measures both).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaUnavailableError
from jobs.runtime.records import Block, block_of
from jobs.runtime.slice_cut import Piece
from jobs.spec.security import librdkafka_options
from jobs.spec.settings import KafkaSettings

MOST_RECORDS = 10_000
MOST_BYTES = 16 * 1024 * 1024
"""Of values in a block, beyond which it takes no more; what is decompressed at once may come on top."""

_AT_ONCE = 1_000
_POLL_SECONDS = 0.5
_OPTIONS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that the log does not have is an error, never a jump.
    "auto.offset.reset": "error",
    # Behind the last record of a range there may be marks of transactions only; the end says so.
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # As Kafka's own client does, and librdkafka does not unless it is told.
    "check.crcs": True,
    "log_level": 0,
    # Says how far it has fetched, also where nothing comes of it: a transaction that was aborted may be long.
    "statistics.interval.ms": 2_000,
    # How long the broker holds a request at the end of the log; the request for the next piece waits behind it.
    "fetch.wait.max.ms": 2,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 4 * 1024 * 1024,
    # What is fetched ahead. Once that much is there, librdkafka waits before it looks again: a second, if not told.
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 32 * 1024,
    "fetch.queue.backoff.ms": 5,
}
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)


class ReadError(FrazilError):
    """A range cannot be read, and waiting does not help: a record that is damaged, a user who may not read."""


class LostOffsetsError(ReadError):
    """The log does not have an offset that a batch has to read: retention or somebody has deleted it."""


def reader_options(settings: KafkaSettings, stream: str) -> dict[str, Any]:
    """The options of the tasks' consumers; they hold the password, so they are never logged.

    Args:
        settings: Brokers, security, isolation and time-out.
        stream: The brokers' logs show it as the group; nothing is committed to it.

    Raises:
        FrazilError: If a secret's environment variable is not set.
    """
    return {
        **_OPTIONS,
        "bootstrap.servers": settings.require_bootstrap(),
        "isolation.level": settings.isolation,
        "group.id": f"frazil-{stream}",
        "socket.timeout.ms": int(settings.request_timeout.total_seconds() * 1000),
        **librdkafka_options(settings.security),
    }


class _Client:
    """A consumer, what its connections last complained of, and how far it has fetched."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.problem: KafkaError | None = None
        self.fetched: dict[TopicPartition, int] = {}
        try:
            self.consumer: Consumer = Consumer({**options, "error_cb": self._note, "stats_cb": self._look})
        except KafkaException as problem:
            raise ReadError(
                f"Kafka's client does not take its options: {problem.args[0].str()}",
                fix="look at kafka.security; its files have to be where the tasks run, too",
            ) from None

    def _note(self, error: KafkaError) -> None:
        # What follows a refusal says only that no broker is left.
        if self.problem is None or self.problem.code() not in _REFUSED:
            self.problem = error

    def _look(self, statistics: str) -> None:
        for topic, found in msgspec.json.decode(statistics).get("topics", {}).items():
            for number, each in found["partitions"].items():
                self.fetched[TopicPartition(topic, int(number))] = each["next_offset"]


# One per worker process, which Spark keeps for the next task: its connections stay as well. A process in which a task
# failed is not kept.
_kept: dict[tuple[tuple[str, Any], ...], _Client] = {}


def read_slice(options: Mapping[str, Any], pieces: Iterable[Piece], patience: float) -> Iterator[Block]:
    """All records of a slice that the log has, piece by piece, in blocks bounded by number and by bytes.

    Args:
        options: As `reader_options` makes them.
        pieces: The slice.
        patience: Seconds without any progress after which Kafka counts as away; more than a request may take.

    Raises:
        LostOffsetsError: The log begins behind the offset to be read.
        ReadError: The brokers refuse, or a record is damaged.
        KafkaUnavailableError: Nothing came for so long.
    """
    key = tuple(sorted(options.items()))
    client = _kept.pop(key, None) or _Client(options)
    for source, range_ in pieces:
        yield from _Reading(client, source, range_, patience).blocks()
    _kept.clear()
    _kept[key] = client


class _Reading:
    def __init__(self, client: _Client, source: TopicPartition, range_: OffsetRange, patience: float) -> None:
        self._client: _Client = client
        self._consumer: Consumer = client.consumer
        self._source: TopicPartition = source
        self._end: int = range_.end
        self._at: int = range_.start
        self._patience: float = patience

    def blocks(self) -> Iterator[Block]:
        try:
            self._client.fetched.pop(self._source, None)
            self._consumer.assign([ClientPartition(self._source.topic, self._source.partition, self._at)])
            while self._at < self._end:
                messages = self._lot()
                if self._at >= self._end:
                    # Nothing of what follows is fetched while the last block is at work.
                    self._consumer.unassign()
                if messages:
                    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
                    yield block_of(self._source, messages, offsets)
        except KafkaException as problem:
            raise self._unreadable(problem.args[0].str()) from None

    def _lot(self) -> list[Message]:
        """The next records: as many as a block may hold, or all up to the end."""
        lot: list[Message] = []
        size, last, fetched = 0, time.monotonic(), -1
        while self._at < self._end and len(lot) < MOST_RECORDS and size < MOST_BYTES:
            # Without waiting it takes what is there already, which librdkafka bounds by bytes.
            room = min(_AT_ONCE, MOST_RECORDS - len(lot))
            messages = self._consumer.consume(room, 0.0) or self._consumer.consume(1, _POLL_SECONDS)
            before = self._at
            records = self._records(messages)
            lot += records
            size += sum(map(len, records))
            reached = self._client.fetched.get(self._source, -1)
            if self._at > before or reached > fetched:
                last, fetched = time.monotonic(), max(fetched, reached)
                self._client.problem = None
                continue
            problem = self._client.problem
            if problem is not None and problem.code() in _REFUSED:
                raise self._unreadable(problem.str())
            if time.monotonic() - last > self._patience:
                raise self._away(problem.str() if problem else f"nothing came for {self._patience:.0f} s")
        return lot

    def _records(self, messages: list[Message]) -> list[Message]:
        """Those that belong to the range; moves on behind them, and behind what is not a record."""
        events: list[Message] = []
        if any(error is not None for error in map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if messages:
            first, last = messages[0], messages[-1]
            newest = last.offset()
            if (
                newest is None
                or not self._is_ours(first)
                or not self._is_ours(last)
                or (first.offset() or 0) < self._at
            ):
                raise self._unreadable(
                    f"the client gave offset {first.offset()} of {first.topic()}-{first.partition()}"
                )
            if newest >= self._end:
                messages = [message for message in messages if (message.offset() or 0) < self._end]
            self._at = max(self._at, newest + 1)
        for event in events:
            self._pass(event)
        return messages

    def _is_ours(self, message: Message) -> bool:
        return (message.topic(), message.partition()) == self._source

    def _pass(self, event: Message) -> None:
        """Take note of what is not a record, once the records before it are counted."""
        error = event.error()
        # Others are of an assignment before this one, or of a group's coordinator, which nobody needs here.
        if error is None or not self._is_ours(event) or self._at >= self._end:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._at = max(self._at, event.offset() or 0)
        elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            raise LostOffsetsError(
                f"topic {self._source.topic}, partition {self._source.partition}: the log does not have offset "
                f"{self._at} any more: {error.str()}",
                fix="start the stream again, which says what is missing and how to go on",
            )
        else:
            raise self._unreadable(error.str())

    def _unreadable(self, said: str) -> ReadError:
        return ReadError(
            f"Kafka: topic {self._source.topic}, partition {self._source.partition} cannot be read at offset "
            f"{self._at}: {said}",
            fix="check that the user may read the topic, and what the brokers' logs say of it",
        )

    def _away(self, said: str) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"Kafka: topic {self._source.topic}, partition {self._source.partition} cannot be read at offset "
            f"{self._at}: {said}",
            fix="check that the brokers run and can be reached from where the tasks run",
        )
