"""The audit's first half, on metadata alone: what the ledger says must be in a table, and whether that adds up.

Rows of one table and partition are followed in the order of their commits. A cursor says where the table stands, and
each batch begins there. Later, and records were passed over; earlier, and records were read twice. Only an operator
moves the cursor otherwise. What comes out are units, see `Unit`, that the rows of the table are held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jobs.commit.offsets import OffsetRange, Positions, TopicPartition
from jobs.commit.stamp_parts import Counts
from jobs.spec.targets import TargetSpec
from jobs.verify.audit_facts import Decision, Problem, Reading, Unit
from jobs.verify.ledger_row import RETURNED, WHOLE, LedgerRow, standing

# The answer after which a partition is as one that was never seen: the new topic may begin anywhere.
_NEW_TOPIC = "recreated_topic"


@dataclass(slots=True)
class Expected:
    """What a table must hold, by the ledger.

    Attributes:
        positions: Where the table stands, per partition.
        sequence: Of the newest row.
        behind: Whether it stands before the end of something that it holds: what comes next was read before.
        whole: `(sequence, rows)`: sums over ranges of which no stamp tells by itself how many rows they put in.
    """

    target: TargetSpec
    units: dict[TopicPartition, list[Unit]] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    sequence: int = 0
    behind: bool = False
    problems: list[Problem] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    unknown: list[tuple[TopicPartition, OffsetRange]] = field(default_factory=list)
    whole: list[tuple[int, int]] = field(default_factory=list)

    @property
    def table(self) -> str:
        """The table's full name."""
        return self.target.name

    def all_units(self) -> Iterator[Unit]:
        """Units of all partitions, in order."""
        for _, units in sorted(self.units.items()):
            yield from units


def expected(target: TargetSpec, rows: Iterable[LedgerRow], begin: Positions | None = None) -> Expected:
    """Follow the ledger's rows of one table.

    Args:
        target: Which one. Only the coordinator is stamped in every batch; holes between the ranges of others mean that
            they got no rows.
        rows: Of one `table_uuid`, in the order of `sequence`; what a rollback took out of the table is left aside.
        begin: Where the table stood when it was audited last, if `rows` begin there.
    """
    found = Expected(target, positions=dict(begin or {}))
    tracks: dict[TopicPartition, _Track] = {}
    known = list(rows)
    found.sequence = max((row.sequence for row in known), default=0)
    for row in standing(known):
        if row.answer == _NEW_TOPIC:
            # Of partitions that were not read at all yet the answer says nothing.
            for partition, track in tracks.items():
                if track.cursor == 0 and row.partition.topic in ("", partition.topic):
                    track.cursor = None
        if row.partition == WHOLE:
            _whole(found, row)
            continue
        track = tracks.get(row.partition)
        if track is None:
            track = tracks[row.partition] = _Track(found, row.partition, found.positions.get(row.partition))
        track.follow(row)
    for partition, track in tracks.items():
        found.units[partition] = _units(partition, track.readings)
        stands = max(track.cursor or 0, track.ended)
        found.behind = found.behind or any(unit.range.end > stands for unit in found.units[partition])
        found.positions.pop(partition, None)
        if stands or track.cursor is not None:
            found.positions[partition] = stands
    return found


class _Track:
    def __init__(self, found: Expected, partition: TopicPartition, cursor: int | None) -> None:
        self._found: Expected = found
        self._partition: TopicPartition = partition
        self.cursor: int | None = cursor
        self.readings: list[Reading] = []
        # Where a former topic of the name ended, which was read whole.
        self.ended: int = 0

    def follow(self, row: LedgerRow) -> None:
        if row.answer == RETURNED:
            # It is the same topic all the same, and goes on where it ended.
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
            # It had been moved back, by whom and when nobody knows.
            self._found.unknown.append((self._partition, row.range))
            self.cursor = row.range.start
            return
        self._judge_begin(row)
        rows = None if row.counts is None else row.counts.rows(self._found.target.role)
        if row.kind == "unknown" or rows is None:
            self._found.unknown.append((self._partition, row.range))
        elif self._found.target.coordinator and row.counts is not None:
            self._judge_sum(row, row.counts)
        counts = row.counts or Counts()
        told = row.kind != "unknown"
        self.readings.append(Reading(row.range, rows, counts, row.sequence, row.snapshot_id, told, row.committed_at))
        self.cursor = max(row.range.end, self.cursor or 0)

    def _decided(self, row: LedgerRow) -> None:
        self._found.decisions.append(_decision(row))
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
            Problem(kind, self._found.table, self._partition, range_, count, sentence, where, surplus=surplus)
        )


def _whole(found: Expected, row: LedgerRow) -> None:
    if row.kind in ("passed", "again", "noted"):
        found.decisions.append(_decision(row))
    elif row.counts is not None:
        found.whole.append((row.sequence, row.counts.rows(found.target.role)))


def _decision(row: LedgerRow) -> Decision:
    return Decision(row.table, row.kind, row.partition, row.range, row.answer, row.note, row.committed_at, row.sequence)


def _units(partition: TopicPartition, readings: list[Reading]) -> list[Unit]:
    units: list[Unit] = []
    together: list[Reading] = []
    end = 0
    for reading in sorted(readings, key=lambda each: each.range):
        if together and reading.range.start >= end:
            units.append(Unit(partition, OffsetRange(together[0].range.start, end), tuple(together)))
            together = []
        together.append(reading)
        end = max(end, reading.range.end) if len(together) > 1 else reading.range.end
    if together:
        units.append(Unit(partition, OffsetRange(together[0].range.start, end), tuple(together)))
    return units


class Agreement:
    """What the sink's batches say of dead letters, and what the dead letters received.

    The two need not agree where an operator's answer had a range read again on one of them: perhaps under another
    configuration, by which other records fail.
    """

    def __init__(self, sink: Expected, dead: Expected) -> None:
        self._sink: Expected = sink
        self._dead: Expected = dead
        self._begun: dict[str, int] = {each.table: _begun_anew(each) for each in (sink, dead)}
        self._decided: dict[TopicPartition, list[OffsetRange]] = {}
        for decision in (*sink.decisions, *dead.decisions):
            if decision.kind in ("again", "passed"):
                self._decided.setdefault(decision.partition, []).append(decision.range)

    def judge(self) -> tuple[list[Problem], list[str]]:
        """Where they disagree, and what is still to come: the dead letters of a batch are committed after its rows."""
        problems: list[Problem] = []
        pending: list[str] = []
        newest = max((unit.newest for unit in self._sink.all_units()), default=0)
        for partition in sorted({*self._sink.units, *self._dead.units}):
            said = [each for unit in self._sink.units.get(partition, ()) for each in unit.readings]
            received = [each for unit in self._dead.units.get(partition, ()) for each in unit.readings]
            # By identity: a reading of the one may look like one of the other.
            of_sink = {id(each) for each in said}
            for both in _units(partition, said + received):
                first = [each for each in both.readings if id(each) in of_sink]
                second = [each for each in both.readings if id(each) not in of_sink]
                told, got = sum(each.counts.dead for each in first), sum(each.counts.dead for each in second)
                if told == got or not self.holds(partition, both.range, first, second):
                    continue
                if not first and both.range.start >= self._sink.positions.get(partition, 0):
                    pending.append(f"dead letters of {partition} {both.range} came while {self._sink.table} was read")
                    continue
                if not second and all(each.sequence == newest for each in first):
                    pending.append(f"{told:,} dead letters of {partition} {both.range} are to be committed yet")
                    continue
                said_so = f"{got:,} dead letters were received, where {self._sink.table} says that {told:,} failed"
                table, off = self._dead.table, abs(told - got)
                problems.append(Problem("dead_letters", table, partition, both.range, off, said_so, surplus=got > told))
        return problems, pending

    def holds(
        self, partition: TopicPartition, range_: OffsetRange, first: Iterable[Reading], second: Iterable[Reading]
    ) -> bool:
        """Whether the two have to agree on a range: the sink's readings of it, and the dead letters'."""
        first, second = list(first), list(second)
        if any(each.rows is None for each in (*first, *second)):
            return False
        if any(_meet(range_, decided) for decided in self._decided.get(partition, ())):
            return False
        sink_anew, dead_anew = self._begun[self._sink.table], self._begun[self._dead.table]
        if any(each.sequence < sink_anew for each in first) or any(each.sequence < dead_anew for each in second):
            return False
        return bool(second) or not dead_anew


def _begun_anew(found: Expected) -> int:
    """The sequence number of the answer by which the other table began anew; 0 if it never did."""
    return max((each.sequence for each in found.decisions if each.answer == "recreated_table"), default=0)


def _meet(one: OffsetRange, other: OffsetRange) -> bool:
    return one.start < other.end and other.start < one.end
