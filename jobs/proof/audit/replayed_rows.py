"""Replayed and discarded rows in an audit.

By the ledger a replayed record is dead, but its row is in the table. By the ledger a discarded row landed: it is on the
branch and is a dead letter, and main lacks it. If such a dead letter came back, the branch has a second row, which no
batch landed. `published_rows` checks whether main has its rows.
"""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import numpy as np
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, LessThanOrEqual, NotEqualTo, NotNull
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.dead_letters.replay.session import landed_batches
from jobs.proof.audit.audit_ranges import OffsetRanges, slice_of_range
from jobs.proof.audit.audit_result import AuditProblem
from jobs.quality.publishing.discarded_letters import letters_of
from jobs.quality.publishing.interval import UnpublishableError, branch_begin
from jobs.records.formats.interface.problems import DISCARDED
from jobs.tables.commit.history.discards import Discard, Discards
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    PartitionRange,
    Positions,
    TopicPartition,
)
from jobs.tables.dead_letter_table.parked_letters import not_of_parked
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE
from jobs.tables.ledger.row_counter import RowCounter

OF_DISCARDS: BooleanExpression = EqualTo("error_class", DISCARDED)


def of_failed_records(dead_letters: Table) -> BooleanExpression:
    """Filter for dead letters of failed records, which the ledger counts as dead; all if the table lacks the column.

    Dead letters of discards and of suspended tables are excluded: a batch has landed their records.
    """
    told = "error_class" in dead_letters.schema().column_names
    return And(NotEqualTo("error_class", DISCARDED), not_of_parked(dead_letters.schema())) if told else AlwaysTrue()


class DiscardedRows:
    """Accounts for the rows of discards, and finds their problems.

    Args:
        main: The whole table, not seen from a branch.
        sink: The table seen from the branch that the stream writes.
        dead_letters: The dead-letter table; None if it does not exist.
    """

    def __init__(self, spec: StreamSpec, main: Table, sink: Table, dead_letters: Table | None) -> None:
        self._spec: StreamSpec = spec
        self._main: Table = main
        self._letters: Table | None = dead_letters
        known = Discards.of(main.metadata.properties, spec.stream, spec.table.name)
        self.discards: tuple[Discard, ...] = known.each
        self.unfinished: Discard | None = known.unfinished
        self._gone: list[Discard] = self._no_more_on_branch()
        self._all: RowCounter | None = None
        self._back: RowCounter | None = None
        self._before: RowCounter | None = None
        if not self.discards or dead_letters is None:
            return
        self._all = self._counter(OF_DISCARDS)
        # Between a replay's two commits its rows exist, and its dead letters do not have the new state yet.
        known_to_letters = landed_batches(sink, spec.stream) <= landed_batches(dead_letters, spec.stream)
        columns = {column.name for column in dead_letters.schema().columns}
        if {"state", "replay_snapshot_id"} <= columns and known_to_letters:
            self._back = self._counter(And(OF_DISCARDS, EqualTo("state", "replayed"), NotNull("replay_snapshot_id")))
        if self._gone:
            last = max(each.at for each in self._gone).isoformat()
            self._before = self._counter(And(OF_DISCARDS, LessThanOrEqual("first_seen", last)))

    def _counter(self, also: BooleanExpression) -> RowCounter:
        assert self._letters is not None, "they are there"
        return RowCounter(self._letters, DEAD_LETTER_COORDINATES, stream=self._spec.stream, also=also)

    def _no_more_on_branch(self) -> list[Discard]:
        """Discards whose rows were on a former branch of the name."""
        refs, gone = self._main.metadata.refs, []
        for each in self.discards:
            try:
                if each.branch not in refs or branch_begin(self._main.metadata, each.branch) >= each.until:
                    gone.append(each)
            except UnpublishableError:
                continue
        return gone

    def landed_once(self, ranges: Sequence[PartitionRange], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Number of rows at each offset on the branch, without rows of replayed dead letters of discards.

        Discarded rows that a recreated branch lacks count as existing, because they are dead letters.

        Args:
            rows: Number of all rows at each offset.
        """
        if self._all is None:
            return list(rows)
        letters = self._all.count(ranges)
        if not any(each.any() for each in letters) and not self._expired:
            return list(rows)
        back = self._back.count(ranges) if self._back else letters
        before = self._before.count(ranges) if self._before else [np.zeros_like(each) for each in rows]
        found: list[np.ndarray] = []
        for each, there, came, lacking in zip(ranges, rows, back, before, strict=True):
            counted = there.astype(np.int16) + np.where(there < 255, lacking, 0)
            counted -= np.minimum(came, np.maximum(counted - 1, 0))
            for discard in self._expired:
                range_ = discard.ranges.get(each.partition)
                if range_ is not None and range_.start < each.range.end and each.range.start < range_.end:
                    # Their dead letters may be deleted, so it is unknown which of them came back.
                    part = slice_of_range(range_, each.range.start)
                    counted[part] = np.minimum(counted[part], 1)
            found.append(np.clip(counted, 0, 255).astype(np.uint8))
        return found

    @property
    def _expired(self) -> list[Discard]:
        """Discards whose dead letters may have been deleted by age."""
        before = self._letters.metadata.properties.get(EXPIRED_BEFORE) if self._letters is not None else None
        return [each for each in self.discards if before is not None and each.at.isoformat() < before]

    def problems(self) -> Iterator[AuditProblem]:
        """Missing or surplus dead letters of a discard."""
        dead = self._spec.dead_letter_table
        for each in self.discards:
            if each.letters is None or each in self._expired:
                continue
            there = letters_of(self._letters, self._spec.stream, each.at).letters if self._letters is not None else 0
            if there != each.letters:
                said = f"{there:,} of the {each.letters:,} dead letters exist that were written when "
                said += f"{each.by} discarded rows at {each.at:%Y-%m-%d %H:%M:%S} UTC"
                off, more = abs(there - each.letters), there > each.letters
                yield AuditProblem("dead_letters", dead, None, None, off, said, exact=False, surplus=more)

    def notes(self) -> Iterator[str]:
        """Notes on discards."""
        if (one := self.unfinished) is not None:
            yield (
                f"a discard of {one.rows:,} rows is decided and not finished: `frazil discard {self._spec.stream}` "
                "finishes it"
            )
        done = [each for each in self.discards if each.finished]
        if done:
            rows, letters = sum(each.rows for each in done), sum(each.letters or 0 for each in done)
            how = "in one discard" if len(done) == 1 else f"in {len(done):,} discards"
            yield (
                f"{rows:,} of the landed rows were discarded {how}: they are {letters:,} more dead letters, and main "
                f"of {self._spec.table.name} has only those that came back"
            )


class ReplayedRows:
    """Counts replayed dead letters, and finds missing rows of theirs.

    Args:
        sink: The loaded table; None if its rows are not counted.
        begins: First offset without expired rows, by partition.

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
            self.pending = f"a replay landed dead letters while {self._sink} was read"
        columns, own = {column.name for column in dead_letters.schema().columns}, of_failed_records(dead_letters)
        back = And(own, EqualTo("state", "replayed"))
        if "state" in columns:
            # Between a replay's two commits its rows exist, and its dead letters do not have the new state yet.
            also = back if landed <= known else own
            self._back = RowCounter(dead_letters, DEAD_LETTER_COORDINATES, stream=stream, also=also)
        if {"state", "replay_snapshot_id"} <= columns and landed >= known:
            with_row = And(back, NotNull("replay_snapshot_id"))
            self._landed = RowCounter(dead_letters, DEAD_LETTER_COORDINATES, stream=stream, also=with_row)

    def count(
        self, ranges: Sequence[PartitionRange], in_tables: Sequence[Sequence[np.ndarray] | None]
    ) -> list[np.ndarray]:
        """Number of replayed dead letters at each offset.

        If a record was in the table already, its replay has landed no row; otherwise a row must exist.

        Args:
            in_tables: Number of rows at each offset in each table of rows; None for a table that was not counted, which
                may have the row.
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
    """Offsets of a stream's replayed dead letters, ascending, by partition."""
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
