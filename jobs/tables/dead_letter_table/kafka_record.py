"""Kafka records produced from dead letters: their headers, their size, and the limits of a topic.

`returned_record` makes the record as it was consumed. `connect_record` adds the headers of Kafka Connect's sinks, as
its `DeadLetterQueueReporter` writes them (Kafka 4.0): ten headers `__connect.errors.*` in a fixed order behind the
record's own, all UTF-8 text. Headers that Connect does not have begin with `__frazil.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.records.formats.interface.decoder import DECODE_HEADER
from jobs.records.formats.interface.problems import (
    AMBIGUOUS_FIELD,
    BAD_BINARY,
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    BAD_UUID,
    DISCARDED,
    EXPRESSION_FAILED,
    KEY_CASE,
    LATE,
    MISSING_FIELD,
    NOT_AN_OBJECT,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    RULE_VIOLATED,
    SCHEMA_CHANGE_PROPOSED,
    SCHEMA_CHANGE_REFUSED,
    UNKNOWN_FIELD,
    UNROUTED,
    WRONG_TYPE,
)

FRAZIL = "__frazil."
RETURNED = FRAZIL + "replay."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Most bytes of Kafka's record format (version 2) beside keys, values and header texts: the batch's head, the record's
# own lengths and deltas, and two lengths per header.
_BATCH_HEAD = 61
_RECORD_HEAD = 36
_HEADER_HEAD = 10

Header = tuple[str, bytes | None]

CONNECT = "__connect.errors."
EXCEPTION_MESSAGE = CONNECT + "exception.message"
STACK_TRACE = CONNECT + "exception.stacktrace"
POINTER = FRAZIL + "pointer"
TIMESTAMP = FRAZIL + "timestamp"
TASK_ID = "0"
# Programs may switch on these header names, so they stay.
_EXCEPTIONS = "frazil.errors."
_STAGES: tuple[tuple[str, str, str], ...] = (
    ("decode_value", "VALUE_CONVERTER", "frazil.decode.ValueDecoder"),
    ("decode_key", "KEY_CONVERTER", "frazil.decode.KeyDecoder"),
    ("key", "KEY_CONVERTER", "frazil.decode.KeyDecoder"),
    ("decode_header", "HEADER_CONVERTER", "frazil.decode.HeaderDecoder"),
    ("header", "HEADER_CONVERTER", "frazil.decode.HeaderDecoder"),
    ("transform", "TRANSFORMATION", "frazil.transform.Transform"),
)
_WRITER = ("TASK_PUT", "frazil.write.TableWriter")
# Connect's JSON converter, without schemas, takes any JSON. A value that does not fit the table fails in the sink.
_OF_THE_TABLE = frozenset(
    {
        *(NOT_AN_OBJECT, WRONG_TYPE, MISSING_FIELD, NULL_IN_REQUIRED, OUT_OF_RANGE, PRECISION_LOSS),
        *(BAD_TIMESTAMP, BAD_TIME, BAD_DATE, BAD_BINARY, BAD_UUID, UNKNOWN_FIELD, KEY_CASE),
        AMBIGUOUS_FIELD,
        *(SCHEMA_CHANGE_PROPOSED, SCHEMA_CHANGE_REFUSED, LATE, EXPRESSION_FAILED, RULE_VIOLATED),
        *(DISCARDED, UNROUTED),
    }
)
LONGEST_TRACE = 4096
_SHORT_MESSAGE = 256


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record to be produced.

    Attributes:
        timestamp_ms: Milliseconds since 1970; None if the source had none.
        headers: Headers in order; a name may occur more than once.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None

    @property
    def size(self) -> int:
        """Most bytes of an uncompressed batch with only this record."""
        texts = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        body = len(self.key or b"") + len(self.value or b"") + texts
        return _BATCH_HEAD + _RECORD_HEAD + len(self.headers) * _HEADER_HEAD + body


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of a topic that a Kafka record has to keep.

    Attributes:
        max_bytes: The topic's `max.message.bytes`.
        before_ms, after_ms: Most milliseconds that a timestamp may be before and after the broker's clock; None if the
        topic does not limit it, or keeps the time of arrival.
    """

    max_bytes: int = 1_048_588
    before_ms: int | None = None
    after_ms: int | None = None

    def takes_time(self, timestamp_ms: int, now_ms: int) -> bool:
        """Whether the topic takes a record with this timestamp."""
        if self.before_ms is not None and now_ms - timestamp_ms > self.before_ms:
            return False
        return self.after_ms is None or timestamp_ms - now_ms <= self.after_ms


def returned_record(letter: Mapping[str, Any], replay: str) -> KafkaRecord:
    """One row of the dead-letter table as its original record, with the origin in further headers.

    Its time is the time of publishing, as the topic's retention could remove the original time at once. A record that
    was returned before has these headers twice, and the last ones count.

    Args:
        letter: The row by column, with key and value as they were consumed.
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
    """A timestamp in milliseconds for a Kafka record; None if a record has none, for which Kafka has -1."""
    if timestamp is None:
        return None
    millis = (timestamp - _EPOCH) // timedelta(milliseconds=1)
    return millis if millis >= 0 else None


def connect_stage(stage: str, error_class: str, field: str | None) -> tuple[str, str]:
    """Connect's stage, and the class that failed, for one of frazil's stages and error classes.

    frazil converts and fits in one pass; Connect converts, and its sink fits. A value that is JSON but does not fit the
    column's type is Connect's `TASK_PUT`. So is every stage that Connect does not have.

    Args:
        field: Path in the record; None for a value that is one column, which Connect's converter types by itself.
    """
    whole = error_class == WRONG_TYPE and field is None
    if error_class in _OF_THE_TABLE and not whole and stage != DECODE_HEADER and not stage.startswith("transform"):
        return _WRITER
    for begin, connect, class_name in _STAGES:
        if stage.startswith(begin):
            return connect, class_name
    return _WRITER


def connect_record(letter: Mapping[str, Any], table: str, limits: RecordLimits, now_ms: int) -> KafkaRecord | None:
    """One row of the dead-letter table as a record of the topic.

    If the record is too large for the topic, it loses its stack trace, then the end of its message, then value, key and
    original headers, in this order. A header `__frazil.pointer` then names the place in the table that has everything.

    Args:
        table: Name of the dead-letter table.
        now_ms: The clock, for topics that refuse timestamps far from it.

    Returns:
        The record, or None if not even the reasons alone fit into the topic.
    """
    original = original_headers(letter)
    timestamp = kafka_milliseconds(letter["timestamp"])
    ours = [*_own_headers(letter, table)]
    # The client takes 0 for "now".
    if timestamp is not None and (timestamp == 0 or not limits.takes_time(timestamp, now_ms)):
        ours.append((TIMESTAMP, str(timestamp).encode()))
        timestamp = None
    reasons = tuple(_connect_headers(letter))
    whole = KafkaRecord(letter["key"], letter["value"], (*original, *reasons, *ours), timestamp)
    if whole.size <= limits.max_bytes:
        return whole
    return next((each for each in _ever_smaller(whole, letter, table, original) if each.size <= limits.max_bytes), None)


def _ever_smaller(
    whole: KafkaRecord, letter: Mapping[str, Any], table: str, original: Sequence[Header]
) -> Iterator[KafkaRecord]:
    # Only the last header of a name is frazil's: a dead letter of a dead letter carries those of its first trip as
    # well.
    own = [*whole.headers[len(original) :]]
    own = [header for header in own if header[0] != STACK_TRACE]
    yield replace(whole, headers=(*original, *own))
    own = [(name, _cut(value, _SHORT_MESSAGE) if name == EXCEPTION_MESSAGE else value) for name, value in own]
    yield replace(whole, headers=(*original, *own))
    own.append((POINTER, _pointer(letter, table)))
    pointed = replace(whole, value=None, headers=(*original, *own))
    yield pointed
    yield replace(pointed, key=None)
    yield replace(pointed, key=None, headers=tuple(own))


def _connect_headers(letter: Mapping[str, Any]) -> Iterator[Header]:
    stage, class_name = connect_stage(letter["stage"], letter["error_class"], letter["field"])
    exception = _EXCEPTIONS + letter["error_class"]
    message: str | None = letter["message"]
    texts: tuple[tuple[str, str | None], ...] = (
        ("topic", letter["topic"]),
        ("partition", str(letter["partition"])),
        ("offset", str(letter["offset"])),
        ("connector.name", letter["stream"]),
        ("task.id", TASK_ID),
        ("stage", stage),
        ("class.name", class_name),
        ("exception.class.name", exception),
        ("exception.message", message),
        ("exception.stacktrace", _trace(exception, message, class_name, letter["field"])),
    )
    for name, text in texts:
        yield CONNECT + name, None if text is None else text.encode()


def _trace(exception: str, message: str | None, class_name: str, field: str | None) -> str:
    """The failure as a Java stack trace: the error, and its place in the record."""
    first = exception if message is None else f"{exception}: {message}"
    last = f"\n\tat {class_name}({field or 'record'})\n"
    room = LONGEST_TRACE - len(last.encode())
    return (_cut(first.encode(), room) or b"").decode() + last


def _own_headers(letter: Mapping[str, Any], table: str) -> Iterator[Header]:
    first_seen: datetime = letter["first_seen"]
    texts: tuple[tuple[str, object], ...] = (
        ("error_class", letter["error_class"]),
        ("stage", letter["stage"]),
        ("field", letter["field"]),
        ("config", letter["config_hash"]),
        ("epoch", letter["epoch"]),
        ("batch", letter["batch_id"]),
        ("first_seen", first_seen.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")),
        ("timestamp_type", letter["timestamp_type"]),
        ("masked", letter.get("masked")),
        ("table", table),
    )
    for name, value in texts:
        if value is not None:
            yield FRAZIL + name, str(value).encode()


def _pointer(letter: Mapping[str, Any], table: str) -> bytes:
    where = {"table": table} | {name: letter[name] for name in ("stream", "topic", "partition", "offset")}
    return json.dumps(where, ensure_ascii=False, separators=(",", ":")).encode()


def _cut(text: bytes | None, room: int) -> bytes | None:
    """The beginning of UTF-8 text, `room` bytes at most, whole characters only."""
    if text is None or len(text) <= room:
        return text
    mark = "…".encode()
    return text[: max(0, room - len(mark))].decode(errors="ignore").encode() + mark
