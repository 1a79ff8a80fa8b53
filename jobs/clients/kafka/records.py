"""Kafka records in Arrow: blocks with the parts that every stage needs, and whole records for those that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from jobs.records.formats.columns.text_values import LAST_MICROSECOND
from jobs.records.formats.registry_wire import (
    KEY_HEADER,
    KEY_SCHEMA_ID,
    VALUE_HEADER,
    VALUE_SCHEMA_ID,
)
from jobs.tables.commit.stamp.offsets import TopicPartition

INSTANT = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WHOLE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("timestampType", pa.int32()),
    ]
)
"""Schema of a record with all its parts. `timestampType` is Kafka's number; null if the record has no timestamp."""

_MOST_MILLIS = LAST_MICROSECOND // 1000
_KNOWN = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)


@dataclass(frozen=True, slots=True)
class FetchedBlock:
    """Records of one partition, by ascending offset.

    Attributes:
        source: Partition of the records.
        records: Value, topic, partition, offset and timestamp of the records; with key, headers and timestampType if
            asked for, in the types of `WHOLE`. Headers are null if a name is no UTF-8, and empty if there are none.
        whole: Returns some of the records, by ascending index, in the columns of `WHOLE`. Key and headers are read only
            for these.
        leader_epoch: Leader epoch of the last record; None if the log does not have it.
        appended_ms: When the broker appended the last record, in milliseconds since 1970; None if the topic has the
            producer's times.
    """

    source: TopicPartition
    records: pa.RecordBatch
    whole: Callable[[Sequence[int]], pa.RecordBatch]
    leader_epoch: int | None = None
    appended_ms: int | None = None


def fetched_block(
    source: TopicPartition,
    messages: Sequence[Message],
    offsets: npt.NDArray[np.int64],
    parts: frozenset[str] = frozenset(),
) -> FetchedBlock:
    """Return the block of some messages.

    Args:
        source: Partition of all messages.
        messages: Records; none is an error.
        offsets: Offset of each record.
        parts: Further parts to fetch: `timestamp_type`, `key`, `headers`, and the columns of schema ids
            (`VALUE_SCHEMA_ID`, `KEY_SCHEMA_ID`), which are null if the record has no such header.
    """
    count = len(messages)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.value, messages)), pa.binary()),
            pa.repeat(pa.scalar(source.topic, pa.string()), count),
            pa.repeat(pa.scalar(source.partition, pa.int32()), count),
            pa.array(offsets),
            _timestamps(messages),
        ],
        names=["value", "topic", "partition", "offset", "timestamp"],
    )
    for part in sorted(parts):
        name, make = _PARTS[part]
        records = records.append_column(name, make(messages))
    kind, millis = messages[-1].timestamp()
    return FetchedBlock(
        source,
        records,
        lambda rows: whole_records([messages[row] for row in rows]),
        leader_epoch=messages[-1].leader_epoch(),
        appended_ms=millis if kind == TIMESTAMP_LOG_APPEND_TIME else None,
    )


def whole_records(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages with all their parts, in the columns of `WHOLE`."""
    columns: dict[str, list[object]] = {name: [] for name in WHOLE.names}
    for message in messages:
        micros, kind = timestamp_of(message)
        headers = headers_of(message)
        columns["key"].append(as_bytes(message.key()))
        columns["value"].append(as_bytes(message.value()))
        columns["headers"].append(
            None if not headers else [{"key": name, "value": as_bytes(value)} for name, value in headers]
        )
        columns["topic"].append(message.topic())
        columns["partition"].append(message.partition())
        columns["offset"].append(message.offset())
        columns["timestamp"].append(micros)
        columns["timestampType"].append(kind)
    return whole_batch(columns)


def whole_batch(columns: Mapping[str, list[object]]) -> pa.RecordBatch:
    """Return the record batch of Python values for the columns of `WHOLE`; timestamps are results of `timestamp_of`."""
    return pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in WHOLE], schema=WHOLE)


def timestamp_of(message: Message) -> tuple[int | None, int | None]:
    """Return a message's timestamp in microseconds since 1970, and Kafka's number of its type.

    Both are None for a message without a timestamp (before Kafka 0.10). The timestamp alone is None if it is beyond the
    year 9999, for example because a producer sent microseconds instead of milliseconds.
    """
    kind, millis = message.timestamp()
    if kind not in _KNOWN or millis < 0:
        return None, None
    # librdkafka numbers the types from one, Kafka from zero.
    return (millis * 1000 if millis <= _MOST_MILLIS else None), kind - 1


def headers_of(message: Message) -> list[tuple[str, object]] | None:
    """Return a message's headers; None if a name is no UTF-8, because the client cannot return it."""
    try:
        return list(message.headers() or ())  # type: ignore[arg-type]
    except (SystemError, UnicodeDecodeError):
        return None


def as_bytes(value: object) -> bytes | None:
    """Return a record's key, value or header as bytes; the client returns bytes or text."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def _keys(messages: Sequence[Message]) -> pa.Array:
    return pa.array(list(map(Message.key, messages)), pa.binary())


def _timestamp_types(messages: Sequence[Message]) -> pa.Array:
    return pa.array([timestamp_of(message)[1] for message in messages], pa.int32())


def _headers(messages: Sequence[Message]) -> pa.Array:
    try:
        found: list[Any] = [headers or () for headers in map(Message.headers, messages)]
    except (SystemError, UnicodeDecodeError):
        found = [headers_of(message) for message in messages]
    return headers_array(found)


def headers_array(found: Sequence[Sequence[tuple[str, object]] | None]) -> pa.ListArray:
    """Return the headers of records in the type of `HEADERS`; null if they could not be read.

    Arrow builds one flat array much faster than a list for each record.
    """
    offsets = np.zeros(len(found) + 1, np.int32)
    np.cumsum(np.fromiter((len(each or ()) for each in found), np.int32, len(found)), out=offsets[1:])
    flat = [header for each in found for header in each or ()]
    pairs = pa.StructArray.from_arrays(
        [pa.array([name for name, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADERS.value_type),
    )
    unreadable = pa.array([each is None for each in found]) if None in found else None
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS, mask=unreadable)


def _schema_ids(header: str) -> Callable[[Sequence[Message]], pa.Array]:
    """Return a function that reads the last header of a name: null without one, empty if headers cannot be read."""

    def last(headers: Any) -> bytes | None:
        pairs: Sequence[tuple[str, bytes | None]] = headers or ()
        for name, value in reversed(pairs):
            if name == header:
                return value or b""
        return None

    def make(messages: Sequence[Message]) -> pa.Array:
        try:
            found: list[Any] = list(map(Message.headers, messages))
        except (SystemError, UnicodeDecodeError):
            each = [headers_of(message) for message in messages]
            return pa.array([b"" if headers is None else last(headers) for headers in each], pa.binary())
        if not any(found):
            return pa.nulls(len(found), pa.binary())
        return pa.array(list(map(last, found)), pa.binary())

    return make


_PARTS: Mapping[str, tuple[str, Callable[[Sequence[Message]], pa.Array]]] = {
    "key": ("key", _keys),
    "headers": ("headers", _headers),
    "timestamp_type": ("timestampType", _timestamp_types),
    VALUE_SCHEMA_ID: (VALUE_SCHEMA_ID, _schema_ids(VALUE_HEADER)),
    KEY_SCHEMA_ID: (KEY_SCHEMA_ID, _schema_ids(KEY_HEADER)),
}


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    millis = np.fromiter((each for _, each in map(Message.timestamp, messages)), np.int64, len(messages))
    if millis.min() > 0 and millis.max() <= _MOST_MILLIS:
        return pa.array(millis * 1000).cast(INSTANT)
    return pa.array([timestamp_of(message)[0] for message in messages], pa.int64()).cast(INSTANT)
