"""Messages of a topic of Connect's dead letters as the records that they were."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from jobs.kafka.records import WHOLE, as_bytes, headers_of, timestamp_of, whole_batch
from jobs.replay.connect.headers import origin


@dataclass(frozen=True, slots=True)
class Lot:
    """Records of a queue at the coordinates that they came from.

    Attributes:
        reasons: What Connect said of each, as far as it may be kept.
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


def lot_of(messages: list[Message], *, quote: bool = True) -> Lot:
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
    return Lot(records, reasons, lacking, np.array([message.offset() for message in messages], np.int64))
