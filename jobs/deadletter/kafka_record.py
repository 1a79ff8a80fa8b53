"""Kafka records that are produced from dead letters, their size, and what a topic takes.

As it was consumed, a record is made here; with the headers of Kafka Connect's dead letters, in `connect_headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

FRAZIL = "__frazil."
RETURNED = FRAZIL + "replay."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What Kafka's record format (version 2) needs at most beside keys, values and header texts: the batch's head, the
# record's own lengths and deltas, and two lengths per header.
_BATCH_HEAD = 61
_RECORD_HEAD = 36
_HEADER_HEAD = 10

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record to be produced.

    Attributes:
        timestamp_ms: Milliseconds since 1970; None where the source had none.
        headers: In order; a name may stand more than once.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None

    @property
    def size(self) -> int:
        """The most bytes that a batch with nothing but this record takes, uncompressed."""
        texts = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        body = len(self.key or b"") + len(self.value or b"") + texts
        return _BATCH_HEAD + _RECORD_HEAD + len(self.headers) * _HEADER_HEAD + body


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of a topic that a Kafka record has to keep.

    Attributes:
        max_bytes: Its `max.message.bytes`.
        before_ms, after_ms: How far a timestamp may be before and after the broker's clock; None for any distance, as
            where the topic keeps the time of arrival.
    """

    max_bytes: int = 1_048_588
    before_ms: int | None = None
    after_ms: int | None = None

    def takes_time(self, timestamp_ms: int, now_ms: int) -> bool:
        """Whether a record with this timestamp is taken."""
        if self.before_ms is not None and now_ms - timestamp_ms > self.before_ms:
            return False
        return self.after_ms is None or timestamp_ms - now_ms <= self.after_ms


def returned_record(letter: Mapping[str, Any], replay: str) -> KafkaRecord:
    """One row of the dead-letter table as the record that it was, and behind its headers where it comes from.

    Its time is that of publishing: one with the original's could be removed by the topic's retention at once. A record
    that was returned before has these headers twice, and the last ones count.

    Args:
        letter: The row, by column; with the key and the value as they were consumed.
        replay: The id of the replay.
    """
    timestamp: datetime | None = letter["timestamp"]
    texts = (
        ("id", replay),
        ("stream", letter["stream"]),
        ("topic", letter["topic"]),
        ("partition", letter["partition"]),
        ("offset", letter["offset"]),
        ("timestamp", None if timestamp is None else (timestamp - _EPOCH) // timedelta(milliseconds=1)),
        ("error_class", letter["error_class"]),
    )
    ours = tuple((RETURNED + name, str(value).encode()) for name, value in texts if value is not None)
    return KafkaRecord(letter["key"], letter["value"], (*original_headers(letter), *ours), None)


def original_headers(letter: Mapping[str, Any]) -> tuple[Header, ...]:
    """The headers that the record of a dead letter had."""
    return tuple((header["key"] or "", header["value"]) for header in letter["headers"] or ())


def kafka_milliseconds(timestamp: datetime | None) -> int | None:
    """A timestamp as a Kafka record has it; None, for which Kafka says -1, where a record has none."""
    if timestamp is None:
        return None
    millis = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    return millis if millis >= 0 else None
