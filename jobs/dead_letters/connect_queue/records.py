"""Records of a queue: Kafka Connect's dead letters by what their headers say, and which of them are left out."""

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


def left_out(
    fetched: list[QueueRecords], spec: StreamSpec, tables: Mapping[str, Table], *, routed: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For fetched records two masks: of all that are left out, and of those among them that the stream reads itself.

    Left out are those as well that a table has already or that came earlier in the batch. The time is left aside: the
    queue's topic may have stamped its own. Which tables of a route a record is for is not known yet: of those `lacked`
    tells.

    Args:
        routed: Whether a route says where rows go.

    Raises:
        FrazilError: The stream reads a topic that records come from, and has never run.
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
    """Which of the records that are for one of a route's tables have no row there: a mask for each block of records.

    One among its late rows is none that is lacking.

    Args:
        rows: Of each, the records that are for the table.
        tables: All of the stream's, as they are.

    Raises:
        FrazilError: It does not say which records its rows are of.
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
    """Tells which records the stream reads by itself: those of its topics that its tables are not complete with."""
    stamps = {name: history(table.metadata, spec.stream).newest for name, table in tables.items()}
    stands = restart_positions(target_positions(stamps, spec.coordinator))
    began = any(stamps.values())

    def left(topic: str, partition: int, offset: int) -> bool:
        if not spec.source.reads(topic):
            return False
        if not began:
            raise FrazilError(
                f"stream {spec.stream} reads topic {topic}, where records of the queue come from, and has never "
                "run: nobody can tell which of them it will read itself. Nothing of the batch is committed.",
                fix=f"frazil run {spec.stream}, then run this again",
            )
        return offset >= stands.get(TopicPartition(topic, partition), 0)

    return left
