"""Waiting letters: dead letters of a stream that may be replayed, by where and when their records came to Kafka."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyarrow.compute makes its functions when it is imported.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.commit.offsets import Positions, TopicPartition
from jobs.deadletter.reader import UnreadableDeadLettersError, read_dead_letters
from jobs.deadletter.table import STATES
from jobs.deadletter.tally import WAITING
from jobs.maintain.changelog_files import ChangesKeptError

_DONE = sorted({*STATES} - {*WAITING})


@dataclass(frozen=True, slots=True)
class WaitingLetters:
    """Letters that may be replayed.

    Attributes:
        offsets: By partition the least offset.
        times: By topic the least time in Kafka, in µs since 1970, as far as it is known.
    """

    offsets: Positions = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)


def waiting_letters(table: Table, stream: str) -> WaitingLetters:
    """The letters of a stream that may be replayed.

    Args:
        table: Of its dead letters.
        stream: Its id.

    Raises:
        ChangesKeptError: Some cannot be read.
    """

    def refuse(problem: UnreadableDeadLettersError) -> None:
        raise ChangesKeptError(f"{problem.message} So all changes stay.", fix=problem.fix or "bring the file back")

    there = table.schema().column_names
    names = tuple(name for name in ("topic", "partition", "offset", "timestamp", "state") if name in there)
    offsets: dict[TopicPartition, int] = {}
    times: dict[str, int] = {}
    for batch in read_dead_letters(table, EqualTo("stream", stream), names, refuse):
        for row in _waiting(batch).to_pylist():
            partition = TopicPartition(row["topic"], row["partition"])
            offset: int = row["offset"]
            offsets[partition] = min(offset, offsets.get(partition, offset))
            came: int | None = row.get("timestamp")
            if came is not None:
                times[partition.topic] = min(came, times.get(partition.topic, came))
    return WaitingLetters(offsets, times)


def _waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those that may be replayed; times in µs since 1970, as some have a year that is none of Python's."""
    names = batch.schema.names
    if "state" in names:
        batch = batch.filter(pc.invert(pc.is_in(pc.fill_null(batch["state"], "new"), pa.array(_DONE))))
    if "timestamp" in names:
        micros = batch["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        batch = batch.set_column(names.index("timestamp"), "timestamp", micros)
    return batch
