"""Waiting letters: dead letters of a stream that may be replayed, by where and when their records came to Kafka."""

# PyIceberg's expressions are pydantic models, of which a type checker sees the keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.commit.offsets import Positions, TopicPartition
from jobs.deadletter.reader import UnreadableDeadLettersError, read_dead_letters
from jobs.deadletter.tally import WAITING
from jobs.maintain.changelog_files import ChangesKeptError


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
        for row in batch.to_pylist():
            if (row.get("state") or "new") not in WAITING:
                continue
            partition = TopicPartition(row["topic"], row["partition"])
            offset: int = row["offset"]
            offsets[partition] = min(offset, offsets.get(partition, offset))
            if (came := row.get("timestamp")) is not None:
                micros = int(came.timestamp() * 1_000_000)
                times[partition.topic] = min(micros, times.get(partition.topic, micros))
    return WaitingLetters(offsets, times)
