"""Replayed rows, as an audit counts them: their records are dead in the ledger, and in the sink all the same."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from pyiceberg.expressions import And, EqualTo, NotNull
from pyiceberg.table import Table

from jobs.commit.offsets import OffsetRange, PartitionRange, Positions, TopicPartition
from jobs.replay.session import landed_batches
from jobs.spec.targets import DEAD_LETTER_COORDINATES
from jobs.verify.audit_ranges import OffsetRanges
from jobs.verify.audit_result import AuditProblem
from jobs.verify.discarded_rows import of_failed_records
from jobs.verify.row_counter import RowCounter


class ReplayedRows:
    """Counts the dead letters that replays brought back, and finds rows of theirs that are not there.

    Args:
        stream: The stream's id.
        sink: Its table, as loaded; None if its rows are not counted.
        dead_letters: Its dead letters, as loaded.
        begins: By partition, the first offset from which on no row has expired.

    Attributes:
        pending: What is still to come; None if both tables know the same replays.
    """

    def __init__(
        self, stream: str, sink: Table | None, dead_letters: Table | None, begins: Positions = MappingProxyType({})
    ) -> None:
        self.problems: list[AuditProblem] = []
        self.pending: str | None = None
        self._sink: str = ".".join(sink.name()) if sink is not None else ""
        self._begins: Positions = begins
        self._back: RowCounter | None = None
        self._landed: RowCounter | None = None
        if sink is None or dead_letters is None:
            return
        landed, known = landed_batches(sink, stream), landed_batches(dead_letters, stream)
        if landed > known:
            self.pending = "a replay is under way, or was killed: `frazil replay` finishes it"
        elif landed < known:
            self.pending = f"a replay landed letters while {self._sink} was read"
        columns, own = {column.name for column in dead_letters.schema().columns}, of_failed_records(dead_letters)
        back = And(own, EqualTo("state", "replayed"))
        if "state" in columns:
            # Between a replay's two commits its rows are there, and its dead letters do not know it yet.
            also = back if landed <= known else own
            self._back = RowCounter(dead_letters, DEAD_LETTER_COORDINATES, stream=stream, also=also)
        if {"state", "replay_snapshot_id"} <= columns and landed >= known:
            with_row = And(back, NotNull("replay_snapshot_id"))
            self._landed = RowCounter(dead_letters, DEAD_LETTER_COORDINATES, stream=stream, also=with_row)

    def count(
        self, ranges: Sequence[PartitionRange], in_tables: Sequence[Sequence[np.ndarray] | None]
    ) -> list[np.ndarray]:
        """How many dead letters of each offset replays brought back.

        A dead letter whose record stood in the table already has landed no row: of one that has, a row must be there.

        Args:
            in_tables: How often each offset stands in each table of rows; None of one that was not counted, in which
                the row may be.
        """
        if self._back is None:
            return [np.zeros(each.range.end - each.range.start, np.uint8) for each in ranges]
        back, counted = self._back.count(ranges), [each for each in in_tables if each is not None]
        if self._landed is None or len(counted) < len(in_tables) or not any(each.any() for each in back):
            return back
        for index, (each, landed) in enumerate(zip(ranges, self._landed.count(ranges), strict=True)):
            there = np.maximum.reduce([table[index] for table in counted])
            lacks = np.flatnonzero((landed > 0) & (there == 0))
            kept = lacks[lacks >= self._begins.get(each.partition, 0) - each.range.start]
            self._add_missing(each.partition, each.range, kept)
        return back

    def _add_missing(self, partition: TopicPartition, range_: OffsetRange, offsets: np.ndarray) -> None:
        if not len(offsets):
            return
        where = OffsetRanges()
        where.add(offsets, range_.start)
        said = f"{len(offsets):,} rows that replays brought back are not there"
        exact, ranges = not where.more, tuple(where.kept)
        self.problems.append(
            AuditProblem("missing", self._sink, partition, range_, len(offsets), said, ranges, exact, where.more)
        )


def replayed_offsets(stream: str, dead_letters: Table) -> dict[TopicPartition, np.ndarray]:
    """The offsets of the letters of a stream that replays brought back, ascending, by their partition."""
    if "state" not in {column.name for column in dead_letters.schema().columns}:
        return {}
    found: dict[TopicPartition, list[int]] = {}
    scan = dead_letters.scan(
        row_filter=And(EqualTo("stream", stream), EqualTo("state", "replayed")), selected_fields=DEAD_LETTER_COORDINATES
    )
    for batch in scan.to_arrow_batch_reader():
        for topic, partition, offset in zip(
            *(batch.column(each).to_pylist() for each in DEAD_LETTER_COORDINATES), strict=True
        ):
            found.setdefault(TopicPartition(topic, partition), []).append(offset)
    return {place: np.unique(np.array(offsets, np.int64)) for place, offsets in found.items()}
