"""Replayed and discarded rows, as an audit counts them.

The ledger calls a replayed record dead, and its row stands in the table all the same. The ledger calls a discarded row
landed: it stands on the branch and is a dead letter, and main has none of it. If such a letter came back, the branch
has a second row, which no batch landed. Whether main has what it should, `published_rows` tells.
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
    """Letters of records that failed: those that the ledger counts as dead; all of a table that does not tell.

    Not those of discards, and not those that wait for a parked table: of both a batch has landed the record.
    """
    told = "error_class" in dead_letters.schema().column_names
    return And(NotEqualTo("error_class", DISCARDED), not_of_parked(dead_letters.schema())) if told else AlwaysTrue()


class DiscardedRows:
    """Takes the rows of discards into account, and finds what is wrong with them.

    Args:
        main: Its table as it is, not as a branch has it.
        sink: The same as the branch has it that the stream writes.
        dead_letters: Its dead letters; None if there is no such table.
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
        # Between a replay's two commits its rows are there, and its dead letters do not know it yet.
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
        """Discards whose rows went with a former branch of the name."""
        refs, gone = self._main.metadata.refs, []
        for each in self.discards:
            try:
                if each.branch not in refs or branch_begin(self._main.metadata, each.branch) >= each.until:
                    gone.append(each)
            except UnpublishableError:
                continue
        return gone

    def landed_once(self, ranges: Sequence[PartitionRange], rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """How often each offset stands in the branch, without the rows of letters of discards that came back.

        What a branch that was made again lacks of discarded rows counts as there, for letters have it.

        Args:
            rows: How often each stands there.
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
                    # Their letters may be gone, and nobody can say which of them came back.
                    part = slice_of_range(range_, each.range.start)
                    counted[part] = np.minimum(counted[part], 1)
            found.append(np.clip(counted, 0, 255).astype(np.uint8))
        return found

    @property
    def _expired(self) -> list[Discard]:
        """Discards whose letters may have been deleted by their age."""
        before = self._letters.metadata.properties.get(EXPIRED_BEFORE) if self._letters is not None else None
        return [each for each in self.discards if before is not None and each.at.isoformat() < before]

    def problems(self) -> Iterator[AuditProblem]:
        """Letters that a discard wrote and that are not there, or more."""
        dead = self._spec.dead_letter_table
        for each in self.discards:
            if each.letters is None or each in self._expired:
                continue
            there = letters_of(self._letters, self._spec.stream, each.at).letters if self._letters is not None else 0
            if there != each.letters:
                said = f"{there:,} dead letters are there of the {each.letters:,} that were written when "
                said += f"{each.by} discarded rows at {each.at:%Y-%m-%d %H:%M:%S} UTC"
                off, more = abs(there - each.letters), there > each.letters
                yield AuditProblem("dead_letters", dead, None, None, off, said, exact=False, surplus=more)

    def notes(self) -> Iterator[str]:
        """What else there is to know of discards."""
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
                f"{rows:,} of the rows that were landed were discarded {how}: they are {letters:,} dead letters "
                f"besides, and main of {self._spec.table.name} has none of them but those that came back"
            )


class ReplayedRows:
    """Counts the dead letters that replays brought back, and finds rows of theirs that are not there.

    Args:
        sink: Its table, as loaded; None if its rows are not counted.
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
