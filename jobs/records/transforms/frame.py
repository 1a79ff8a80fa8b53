"""Frame of rows: Kafka's metadata of their records, taken only if a step asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices = npt.NDArray[np.int64]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of the part `headers`."""
PARTS: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_type": pa.string(),
    "key": pa.binary(),
    "headers": HEADERS,
}
"""The parts of a frame, with their types. The last three are fetched only if a step asks for them."""
FETCHED: Final = frozenset({"timestamp_type", "key", "headers"})
BATCH_TIME: Final = "batch_time"
"""A name that a step may ask for: the time of the batch, which is no part and is not fetched."""


def timestamp_types(records: pa.RecordBatch) -> pa.Array:
    """Return Kafka's names of the records' kinds of timestamp, from its numbers in the column `timestampType`."""
    # Built here: at module level, an array would import pandas, too.
    return pa.array(["CreateTime", "LogAppendTime"]).take(records.column("timestampType"))


class Frame:
    """Kafka's metadata of the records of some rows: one entry for each row in every part.

    Steps may replace the record's topic, key and headers. The dead letter of a record, and the columns that say where a
    row came from, keep the record's own.

    Args:
        records: Records as they were read.
        positions: The record of each row; None if each record has one row.
        changed: Parts that steps have replaced, one entry for each row.
        batch_time: Time of the records' batch, the value of now() in an expression; None if no step asks for it.
    """

    def __init__(
        self,
        records: pa.RecordBatch,
        positions: Indices | None = None,
        changed: Mapping[str, pa.Array] | None = None,
        batch_time: datetime | None = None,
    ) -> None:
        self._records: pa.RecordBatch = records
        self._positions: Indices | None = positions
        self.changed: Mapping[str, pa.Array] = changed or {}
        self.batch_time: datetime | None = batch_time
        self._known: dict[str, pa.Array] = {}

    def part(self, name: str) -> pa.Array:
        """Return a part of the rows' records, as steps left it; of type `PARTS[name]`.

        Raises:
            KeyError: The part was not fetched: no step has asked for it.
        """
        if name in self.changed:
            return self.changed[name]
        if name not in self._known:
            self._known[name] = self._taken(name)
        return self._known[name]

    def with_part(self, name: str, values: pa.Array) -> Frame:
        """Return the frame with another topic, key or headers."""
        return Frame(self._records, self._positions, {**self.changed, name: values}, self.batch_time)

    def at(self, batch_time: datetime | None) -> Frame:
        """Return the frame of the same rows in a batch of this time."""
        return self if batch_time is None else Frame(self._records, self._positions, self.changed, batch_time)

    @classmethod
    def joined(cls, first: Frame, second: Frame) -> Frame:
        """Return the frame of the rows of two frames of the same records, one after the other."""
        changed = {
            name: pa.concat_arrays([first.part(name), second.part(name)])
            for name in {**first.changed, **second.changed}
        }
        return cls(first._records, np.concatenate([first.positions, second.positions]), changed, first.batch_time)

    @property
    def positions(self) -> Indices:
        """Return the record of each row."""
        return np.arange(self._records.num_rows, dtype=np.int64) if self._positions is None else self._positions

    def take(self, rows: Indices) -> Frame:
        """Return the frame of some of the rows."""
        positions = rows if self._positions is None else self._positions[rows]
        indices = pa.array(rows, pa.int64())
        changed = {name: each.take(indices) for name, each in self.changed.items()}
        return Frame(self._records, positions, changed, self.batch_time)

    def _taken(self, name: str) -> pa.Array:
        kind = PARTS[name]
        if name == "timestamp_type" and name not in self._records.schema.names:
            found = timestamp_types(self._records)
        else:
            found = self._records.column(name)
        if pa.types.is_dictionary(found.type):
            found = found.dictionary_decode()
        if self._positions is not None:
            found = found.take(pa.array(self._positions))
        return found if found.type == kind else found.cast(kind)
