"""Records of a queue: Kafka Connect's dead letters by their headers, and those that are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.kafka.records import (
    WHOLE,
    as_bytes,
    headers_of,
    timestamp_of,
    whole_batch,
)
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.landed import LETTER_COLUMNS, already_landed, first_of
from jobs.dead_letters.replay.result import COORDINATES
from jobs.dead_letters.replay.routing import names_beside, not_located
from jobs.streaming.pipeline.block import Indices
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions
from jobs.tables.dead_letter_table.kafka_record import CONNECT

_EXCEPTION = "exception.class.name"
_NUMBER = re.compile(r"\d{1,18}")
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class QueueRecords:
    """Records of a queue with their original coordinates.

    Attributes:
        reasons: Connect's reason for each, as far as it may be stored.
        lacking: Mask of records whose headers lack their origin.
        queue: Offset of each in the queue.
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
    """Parse the headers of each record.

    Args:
        quote: Whether the reasons include the exceptions' messages, which may quote the record.
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


@dataclass(frozen=True, slots=True)
class Origin:
    """Headers of one of Connect's dead letters.

    Attributes:
        place: Topic, partition and offset of the record; None if the headers lack them.
        reason: Connect's reason, a sentence; None without one.
        kind: Stage and exception class only, without the message, which may quote the record.
        headers: Headers of the record itself.
    """

    place: tuple[str, int, int] | None
    reason: str | None
    kind: str | None
    headers: list[tuple[str, bytes | None]]


def origin(headers: Headers) -> Origin:
    """Parse the headers of one of Connect's dead letters.

    A record that went through two queues has each of Connect's headers twice: the last one counts.
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


def left_out(
    fetched: list[QueueRecords], spec: StreamSpec, tables: Mapping[str, Table], *, routed: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Masks over fetched records: those left out, and those of them that the stream reads itself.

    Records that a table has already, or that came earlier in the batch, are left out, too. The timestamp is ignored, as
    the queue's topic may have set its own. The tables of a route are not known yet: `lacked` covers those.

    Args:
        routed: Whether a route decides about tables.

    Raises:
        FrazilError: The stream reads a topic of the records, and has never run.
    """
    if not fetched:
        return
    (together,) = pa.Table.from_batches([each.records for each in fetched]).combine_chunks().to_batches()
    places = (together.column(name).to_pylist() for name in COORDINATES)
    letters = tables[spec.dead_letter_table]
    is_left = _is_left(spec, tables)
    left = np.array([is_left(*place) for place in zip(*places, strict=True)], dtype=bool)
    out = left | (first_of(together, by_time=False) != np.arange(together.num_rows))
    if not routed:
        for name in names_beside(spec, spec.table.name):
            out |= already_landed(tables[name], together, columns=spec.kafka_columns.instant_coordinates, by_time=False)
    out |= already_landed(letters, together, columns=LETTER_COLUMNS, by_time=False)
    at = 0
    for each in fetched:
        rows = slice(at, at + each.records.num_rows)
        yield out[rows], left[rows]
        at = rows.stop


def lacked(
    fetched: Sequence[QueueRecords], rows: Sequence[Indices], spec: StreamSpec, name: str, tables: Mapping[str, Table]
) -> list[np.ndarray]:
    """Which records for one of a route's tables have no row there, as a mask for each block.

    A row among the late rows counts as existing.

    Args:
        rows: Records for the table, for each block.
        tables: All tables of the stream, as they are.

    Raises:
        FrazilError: Rows of the table lack coordinates.
    """
    mine = [each.records.take(pa.array(at)) for each, at in zip(fetched, rows, strict=True)]
    (together,) = pa.Table.from_batches(mine).combine_chunks().to_batches() or [mine[0]]
    lack = np.ones(together.num_rows, dtype=bool)
    for each in names_beside(spec, name):
        if not spec.kafka_columns.locate_rows_of(tables[each].schema()):
            raise not_located(spec, each)
        columns = spec.kafka_columns.instant_coordinates
        lack &= ~already_landed(tables[each], together, columns=columns, by_time=False)
    return np.split(lack, np.cumsum([len(at) for at in rows])[:-1])


def _is_left(spec: StreamSpec, tables: Mapping[str, Table]) -> Callable[[str, int, int], bool]:
    """Predicate for records that the stream reads itself: those of its topics beyond what its tables have."""
    stamps = {name: history(table.metadata, spec.stream).newest for name, table in tables.items()}
    stands = restart_positions(target_positions(stamps, spec.coordinator))
    began = any(stamps.values())

    def left(topic: str, partition: int, offset: int) -> bool:
        if not spec.source.reads(topic):
            return False
        if not began:
            raise FrazilError(
                f"stream {spec.stream} reads topic {topic}, where records of the queue come from, and has never run: "
                "it is unknown which of them it will read itself. Nothing of the batch is committed.",
                fix=f"frazil run {spec.stream}, then run this again",
            )
        return offset >= stands.get(TopicPartition(topic, partition), 0)

    return left
