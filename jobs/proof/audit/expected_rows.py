"""Expected rows of a table by the ledger, and whether they add up, from metadata only.

Rows of one table and partition are followed in the order of their commits. A cursor has the table's position, where
each batch has to begin. If it begins later, records were passed over; if earlier, records were read twice. Only an
operator moves the cursor otherwise. The result is range groups, which the table's rows are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.audit_ranges import (
    BatchRange,
    ComparedRange,
    RangeGroup,
    compared_ranges,
    group_ranges,
    ranges_overlap,
)
from jobs.proof.audit.audit_result import BACKFILLED, AuditProblem, OperatorDecision
from jobs.streaming.operator.backfill_stream import backfilled_stream
from jobs.tables.commit.recovery.reset import RESET_NOTE
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import (
    RETURNED,
    WHOLE_TABLE,
    LedgerRow,
    effective_rows,
)

# After this answer a partition counts as new: the new topic may begin anywhere.
_NEW_TOPIC = "recreated_topic"


@dataclass(slots=True)
class ExpectedRows:
    """Expected content of a table, by the ledger.

    Attributes:
        positions: Position of the table, per partition.
        sequence: Sequence number of the newest row.
        behind: Whether its position is before the end of something that it holds, so that the next records were read
            before.
        backfilled: Ranges that a backfill landed, if this is the coordinator of one: a decision for each run and
            adjoining ranges.
        whole: `(sequence, rows)`: sums over ranges whose own number of rows is in no stamp.
    """

    target: TargetSpec
    groups: dict[TopicPartition, list[RangeGroup]] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    sequence: int = 0
    behind: bool = False
    problems: list[AuditProblem] = field(default_factory=list)
    decisions: list[OperatorDecision] = field(default_factory=list)
    backfilled: list[OperatorDecision] = field(default_factory=list)
    unknown: list[tuple[TopicPartition, OffsetRange]] = field(default_factory=list)
    whole: list[tuple[int, int]] = field(default_factory=list)

    @property
    def table(self) -> str:
        """Full name of the table."""
        return self.target.name

    def all_groups(self) -> Iterator[RangeGroup]:
        """Range groups of all partitions, in order."""
        for _, groups in sorted(self.groups.items()):
            yield from groups


def expected_rows(target: TargetSpec, rows: Iterable[LedgerRow], begin: Positions | None = None) -> ExpectedRows:
    """Follow the ledger's rows of one table.

    Args:
        target: The target. Only the coordinator is stamped in every batch; gaps between the ranges of others mean that
            they got no rows.
        rows: Rows of one `table_uuid`, in the order of `sequence`; those that a rollback removed are ignored.
        begin: Position at the last audit, if `rows` begin there.
    """
    found = ExpectedRows(target, positions=dict(begin or {}))
    tracks: dict[TopicPartition, _Track] = {}
    notes: dict[int, str] = {}
    known = list(rows)
    found.sequence = max((row.sequence for row in known), default=0)
    for row in effective_rows(known):
        if row.answer == _NEW_TOPIC:
            # The answer does not concern partitions that were never read.
            for partition, track in tracks.items():
                if track.cursor == 0 and row.partition.topic in ("", partition.topic):
                    track.cursor = None
        if row.partition == WHOLE_TABLE:
            _whole(found, row)
            continue
        track = tracks.get(row.partition)
        if track is None:
            track = tracks[row.partition] = _Track(found, row.partition, found.positions.get(row.partition), notes)
        track.follow(row)
    for partition, track in tracks.items():
        found.groups[partition] = group_ranges(partition, track.batches)
        found.backfilled += track.backfilled
        stands = max(track.cursor or 0, track.ended)
        found.behind = found.behind or any(group.range.end > stands for group in found.groups[partition])
        found.positions.pop(partition, None)
        if stands or track.cursor is not None:
            found.positions[partition] = stands
    return found


class _Track:
    """Rows of one partition, followed in order.

    Args:
        cursor: Position at the last audit; None if the first row may begin anywhere.
        notes: Notes of the operators' answers by epoch, of all partitions.
    """

    def __init__(
        self, found: ExpectedRows, partition: TopicPartition, cursor: int | None, notes: dict[int, str]
    ) -> None:
        self._found: ExpectedRows = found
        self._partition: TopicPartition = partition
        self.cursor: int | None = cursor
        self.batches: list[BatchRange] = []
        # End of a former topic of the name, which was read completely.
        self.ended: int = 0
        self.backfilled: list[OperatorDecision] = []
        self._notes: dict[int, str] = notes
        self._landed: LedgerRow | None = None

    def follow(self, row: LedgerRow) -> None:
        if row.answer == RETURNED:
            # It is the same topic nevertheless, and goes on where it ended.
            self.cursor = row.range.end
            return
        if row.kind == "noted":
            # The topic was retired: a later one of its name begins anew.
            self.ended, self.cursor = max(row.range.end, self.ended), None
            return
        if row.kind in ("passed", "again"):
            self._decided(row)
            return
        if row.range.end <= row.range.start:
            return
        if row.kind == "unknown" and self.cursor is not None and row.range.end <= self.cursor:
            # It had been moved back, by an unknown author at an unknown time.
            self._found.unknown.append((self._partition, row.range))
            self.cursor = row.range.start
            return
        self._judge_begin(row)
        rows = row.rows(self._found.target.role)
        if row.kind == "unknown" or rows is None:
            self._found.unknown.append((self._partition, row.range))
        elif self._found.target.coordinator and row.counts is not None:
            self._judge_sum(row, row.counts)
        counts = row.counts or Counts()
        stamped = row.kind != "unknown"
        self.batches.append(
            BatchRange(row.range, rows, counts, row.sequence, row.snapshot_id, stamped, row.committed_at)
        )
        self.cursor = max(row.range.end, self.cursor or 0)
        if self._found.target.coordinator and backfilled_stream(row.stream) != row.stream:
            self._note_backfilled(row)

    def _note_backfilled(self, row: LedgerRow) -> None:
        """Add a batch of a backfill to the ranges that its run landed, with the reason of the run's own move."""
        last, landed = self._landed, row.range
        if last is not None and last.epoch == row.epoch and last.range.end == landed.start:
            landed = OffsetRange(self.backfilled.pop().range.start, landed.end)
        # Each run has an epoch of its own. One that began where the former had ended moved nothing, and kept no note.
        note = self._notes.get(row.epoch, "").partition(RESET_NOTE)[0] or None
        self.backfilled.append(
            OperatorDecision(row.table, BACKFILLED, row.partition, landed, None, note, row.committed_at, row.sequence)
        )
        self._landed = row

    def _decided(self, row: LedgerRow) -> None:
        self._found.decisions.append(_decision(row))
        self._notes[row.epoch] = row.note or ""
        if row.kind == "passed":
            self._judge_begin(row, passed=True)
            self.cursor = row.range.end
        else:
            self.cursor = None if row.answer == _NEW_TOPIC else row.range.start

    def _judge_begin(self, row: LedgerRow, *, passed: bool = False) -> None:
        start, end = row.range
        if self.cursor is None or start == self.cursor:
            return
        if start > self.cursor:
            if self._found.target.coordinator:
                self._problem("gap", OffsetRange(self.cursor, start), "no batch read these offsets")
        elif not passed:
            said = f"batch {row.batch} of epoch {row.epoch} read these offsets, and the table had them already"
            self._problem("overlap", OffsetRange(start, min(self.cursor, end)), said)

    def _judge_sum(self, row: LedgerRow, counts: Counts) -> None:
        accounted = counts.landed + counts.dead + counts.tombstones + counts.filtered
        if accounted != counts.read:
            said = f"{counts.read:,} records were read, and {accounted:,} became rows, dead letters or tombstones"
            self._problem("sum", row.range, said, abs(counts.read - accounted), surplus=accounted > counts.read)
        elif counts.read > row.range.end - row.range.start:
            self._problem("sum", row.range, f"{counts.read:,} records were read from fewer offsets", counts.read)

    def _problem(
        self, kind, range_: OffsetRange, sentence: str, records: int | None = None, *, surplus: bool | None = None
    ) -> None:
        count = range_.end - range_.start if records is None else records
        where = (range_,)
        self._found.problems.append(
            AuditProblem(kind, self._found.table, self._partition, range_, count, sentence, where, surplus=surplus)
        )


def _whole(found: ExpectedRows, row: LedgerRow) -> None:
    if row.kind in ("passed", "again", "noted"):
        found.decisions.append(_decision(row))
    elif (rows := row.rows(found.target.role)) is not None:
        found.whole.append((row.sequence, rows))


def _decision(row: LedgerRow) -> OperatorDecision:
    return OperatorDecision(
        row.table, row.kind, row.partition, row.range, row.answer, row.note, row.committed_at, row.sequence
    )


class DeadLetterAgreement:
    """Compares the sink's counts of dead letters with the rows that the dead letters received.

    The two may differ if an operator had a range read again on one of them, possibly under another configuration, by
    which other records fail.
    """

    def __init__(self, sink: ExpectedRows, dead: ExpectedRows) -> None:
        self._sink: ExpectedRows = sink
        self._dead: ExpectedRows = dead
        self._begun: dict[TargetSpec, int] = {each.target: _begun_anew(each) for each in (sink, dead)}
        self._decided: dict[TopicPartition, list[OffsetRange]] = {}
        for decision in (*sink.decisions, *dead.decisions):
            if decision.kind in ("again", "passed"):
                self._decided.setdefault(decision.partition, []).append(decision.range)

    def judge(self) -> tuple[list[AuditProblem], list[str]]:
        """Disagreements, and what is still to come: a batch's dead letters are committed after its rows."""
        problems: list[AuditProblem] = []
        pending: list[str] = []
        newest = max((group.newest for group in self._sink.all_groups()), default=0)
        groups = {each.target: each.groups for each in (self._sink, self._dead)}
        for compared in compared_ranges(groups, dict.fromkeys(groups, -1)):
            partition, range_ = compared.partition, compared.range
            first, second = compared.batches(self._sink.target), compared.batches(self._dead.target)
            failed, got = sum(each.counts.dead for each in first), sum(each.counts.dead for each in second)
            if failed == got or not self.covers(compared):
                continue
            if not first and range_.start >= self._sink.positions.get(partition, 0):
                pending.append(f"dead letters of {partition} {range_} came while {self._sink.table} was read")
                continue
            if not second and all(each.sequence == newest for each in first):
                pending.append(f"{failed:,} dead letters of {partition} {range_} are to be committed yet")
                continue
            sentence = f"{got:,} dead letters were received, and by {self._sink.table} {failed:,} failed"
            table, off = self._dead.table, abs(failed - got)
            problems.append(AuditProblem("dead_letters", table, partition, range_, off, sentence, surplus=got > failed))
        return problems, pending

    def covers(self, compared: ComparedRange) -> bool:
        """Whether the two have to agree on a compared range."""
        if any(ranges_overlap(compared.range, decided) for decided in self._decided.get(compared.partition, ())):
            return False
        for target, begun in self._begun.items():
            if any(each.rows is None or each.sequence < begun for each in compared.batches(target)):
                return False
        return bool(compared.batches(self._dead.target)) or not self._begun[self._dead.target]


def _begun_anew(found: ExpectedRows) -> int:
    """Sequence number of the answer by which the other table began anew; 0 without one."""
    return max((each.sequence for each in found.decisions if each.answer == "recreated_table"), default=0)
