"""Records of a queue: Kafka Connect's dead letters as the records that they were, by what their headers say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from jobs.deadletter.connect_headers import CONNECT
from jobs.kafka.records import WHOLE, as_bytes, headers_of, timestamp_of, whole_batch


@dataclass(frozen=True, slots=True)
class QueueRecords:
    """Records of a queue at the coordinates that they came from.

    Attributes:
        reasons: What Connect says of each, as far as it may be kept.
        lacking: Mask of those whose headers do not say where they come from.
        queue: The offset of each in the queue.
    """

    records: pa.RecordBatch
    reasons: list[str | None]
    lacking: np.ndarray
    queue: np.ndarray

    def place(self, row: int) -> tuple[str, int, int]:
        """Topic, partition and offset of a record."""
        topic, partition, offset = (self.records.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
        return topic, partition, offset


def queue_records(messages: list[Message], *, quote: bool = True) -> QueueRecords:
    """Read the headers of each.

    Args:
        quote: Whether the reasons hold the exceptions' messages, which may quote the record.
    """
    columns: dict[str, list[object]] = {name: [] for name in WHOLE.names}
    reasons: list[str | None] = []
    lacking = np.zeros(len(messages), dtype=bool)
    for row, message in enumerate(messages):
        found = origin([(name, as_bytes(value)) for name, value in headers_of(message) or ()])
        lacking[row] = found.place is None
        topic, partition, offset = found.place or (message.topic(), message.partition(), message.offset())
        micros, kind = timestamp_of(message)
        columns["key"].append(as_bytes(message.key()))
        columns["value"].append(as_bytes(message.value()))
        columns["headers"].append([{"key": name, "value": value} for name, value in found.headers])
        columns["topic"].append(topic)
        columns["partition"].append(partition)
        columns["offset"].append(offset)
        columns["timestamp"].append(micros)
        columns["timestampType"].append(kind)
        reasons.append(found.reason if quote else found.kind)
    records = whole_batch(columns)
    return QueueRecords(records, reasons, lacking, np.array([message.offset() for message in messages], np.int64))


_EXCEPTION = "exception.class.name"
_NUMBER = re.compile(r"\d{1,18}")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Origin:
    """What the headers of one of Connect's dead letters say.

    Attributes:
        place: Topic, partition and offset of the record; None if the headers do not say.
        reason: What Connect said of it, in a sentence; None if it said nothing.
        kind: Of that the stage and the class of the exception alone, whose message may quote the record.
        headers: The record's own.
    """

    place: tuple[str, int, int] | None
    reason: str | None
    kind: str | None
    headers: list[tuple[str, bytes | None]]


def origin(headers: Headers) -> Origin:
    """Read the headers of one of Connect's dead letters.

    A letter that went through two queues has each of Connect's headers twice: the last one counts.
    """
    own: list[tuple[str, bytes | None]] = []
    connect: dict[str, str | None] = {}
    for name, value in headers:
        if name.startswith(CONNECT):
            connect[name.removeprefix(CONNECT)] = None if value is None else value.decode("utf-8", "replace")
        else:
            own.append((name, value))
    topic, partition, offset = connect.get("topic"), connect.get("partition") or "", connect.get("offset") or ""
    place = None
    if topic and _NUMBER.fullmatch(partition) and int(partition) < 2**31 and _NUMBER.fullmatch(offset):
        place = topic, int(partition), int(offset)
    return Origin(place, _reason(connect), _joined(connect.get("stage"), connect.get(_EXCEPTION)), own)


def _reason(connect: dict[str, str | None]) -> str | None:
    exception = ": ".join(part for part in (connect.get(_EXCEPTION), connect.get("exception.message")) if part)
    return _joined(
        connect.get("stage"), exception, connect.get("connector.name") and f"connector {connect['connector.name']}"
    )


def _joined(*parts: str | None) -> str | None:
    return ", ".join(part for part in parts if part) or None
