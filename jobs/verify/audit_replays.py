"""Rows that replays brought back, as an audit counts them: their records are dead in the ledger and in the sink all the
same."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.commit.history import history
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.runtime.replay_session import BATCHES, replay_id
from jobs.runtime.rows_in_ranges import DEAD_LETTER_COLUMNS
from jobs.verify.audit_count import Ranges
from jobs.verify.audit_facts import Problem
from jobs.verify.table_rows import Piece, RowCounter


def under_way(stream: str, sink: Table, letters: Table) -> bool:
    """Whether a replay's rows are in the sink and its letters do not know it yet."""

    def batches(table: Table) -> int:
        newest = history(table.metadata, replay_id(stream)).newest
        return newest.position.get(BATCHES, 0) if newest else 0

    return batches(sink) > batches(letters)


class Replays:
    """Takes the rows that replays brought back out of what the sink is held to.

    Args:
        stream: The stream's id.
        sink: Name of its table.
        letters: Its dead letters, as loaded.
    """

    def __init__(self, stream: str, sink: str, letters: Table | None) -> None:
        self.problems: list[Problem] = []
        self._sink: str = sink
        self._counter: RowCounter | None = None
        if letters is not None and "state" in {column.name for column in letters.schema().columns}:
            self._counter = RowCounter(letters, DEAD_LETTER_COLUMNS, stream=stream, also=EqualTo("state", "replayed"))

    def without(self, pieces: Sequence[Piece], in_sink: list[np.ndarray]) -> list[np.ndarray]:
        """How often each offset stands in the sink, rows of replays left out; those that are not there are noted."""
        if self._counter is None:
            return in_sink
        back = self._counter.count(pieces)
        return [self._less(*each) for each in zip(pieces, in_sink, back, strict=True)]

    def _less(self, piece: Piece, in_sink: np.ndarray, back: np.ndarray) -> np.ndarray:
        if not back.any():
            return in_sink
        lacking = np.flatnonzero(back > in_sink)
        if len(lacking):
            self._note(piece.partition, piece.range, lacking)
        return in_sink - np.minimum(in_sink, back)

    def _note(self, partition: TopicPartition, range_: OffsetRange, offsets: np.ndarray) -> None:
        where = Ranges()
        where.add(offsets, range_.start)
        said = f"{len(offsets):,} rows that replays brought back are not there"
        exact, ranges = not where.more, tuple(where.kept)
        self.problems.append(
            Problem("missing", self._sink, partition, range_, len(offsets), said, ranges, exact, where.more)
        )
