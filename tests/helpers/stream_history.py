"""History of a stream in memory: what the ledger says of it, and what its tables hold, so that audits can be tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.audit_ranges import compared_ranges, range_windows
from jobs.proof.audit.audit_result import StreamAudit, TableAudit
from jobs.proof.audit.audit_totals import AuditTotals
from jobs.proof.audit.expected_rows import DeadLetterAgreement, expected_rows
from jobs.proof.audit.found_rows import compare_rows
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_row import NO_RANGE, WHOLE_TABLE, LedgerRow
from jobs.tables.ledger.row_counter import MANY
from tests.helpers.targets import pair

SINK, DEAD = "orders.payments", "orders.payments_dead"
TARGETS = SINK_TARGET, DEAD_TARGET = pair(SINK, DEAD)
ROW, TOMBSTONE, FAILED, HOLE = "row", "tombstone", "failed", "hole"
At = tuple[TopicPartition, int]
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


@dataclass
class Side:
    """Table of the history: its rows, ledger and position, also after each commit."""

    name: str
    rows: Counter[At] = field(default_factory=Counter)
    ledger: list[LedgerRow] = field(default_factory=list)
    position: dict[TopicPartition, int] = field(default_factory=dict)
    sequence: int = 0
    past: dict[int, tuple[Counter[At], dict[TopicPartition, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.past[0] = (Counter(), {})

    def commit(self, entries: Sequence[tuple[str, TopicPartition, OffsetRange, Mapping[str, Any]]]) -> None:
        """Commit with these entries in the stamp."""
        self.sequence += 1
        for kind, partition, range_, more in entries:
            self.ledger.append(ledger_row(self.name, kind, partition, range_, self.sequence, **more))
        self.past[self.sequence] = (Counter(self.rows), dict(self.position))


def ledger_row(
    table: str, kind: Any, partition: TopicPartition, range_: OffsetRange, sequence: int, **more: Any
) -> LedgerRow:
    """A row of the ledger, in which only what an audit looks at is of interest."""
    return LedgerRow(
        stream="payments",
        table=table,
        table_uuid=f"uuid-{table}",
        anchor=table == SINK,
        kind=kind,
        partition=partition,
        range=range_,
        epoch=1,
        batch=sequence,
        sequence=sequence,
        snapshot_id=sequence,
        committed_at=datetime(2026, 11, 1, tzinfo=UTC),
        config="config",
        **more,
    )


class StreamHistory:
    """History of a stream; `fates` has the outcome of each record."""

    def __init__(self, fates: Mapping[TopicPartition, Sequence[str]]) -> None:
        self.fates: dict[TopicPartition, list[str]] = {p: list(each) for p, each in fates.items()}
        self.sink, self.dead = Side(SINK), Side(DEAD)
        # Where a topic that was created anew begins.
        self.begin: dict[TopicPartition, int] = {}
        self.floor: int = 0

    def stands(self, partition: TopicPartition) -> int:
        return self.sink.position.get(partition, self.begin.get(partition, 0))

    def batch(self, sizes: Mapping[TopicPartition, int], *, dead_too: bool = True) -> None:
        """Read on, some offsets of each partition."""
        of_sink: list[Any] = []
        of_dead: list[Any] = []
        for partition, size in sizes.items():
            start = self.stands(partition)
            end = min(start + size, len(self.fates[partition]))
            if end <= start:
                continue
            read = {offset: self.fates[partition][offset] for offset in range(start, end)}
            kinds = Counter(read.values())
            landed, failed, tombstones = kinds[ROW], kinds[FAILED], kinds[TOMBSTONE]
            counts = Counts(landed + failed + tombstones, landed, failed, tombstones)
            of_sink.append(("batch", partition, OffsetRange(start, end), {"counts": counts}))
            self.sink.rows.update((partition, offset) for offset, fate in read.items() if fate == ROW)
            self.sink.position[partition] = end
            stood = self.dead.position.get(partition, start)
            letters = [offset for offset, fate in read.items() if fate == FAILED and offset >= stood]
            if letters and dead_too:
                received = {"counts": Counts(read=len(letters), dead=len(letters))}
                of_dead.append(("batch", partition, OffsetRange(max(start, stood), end), received))
                self.dead.rows.update((partition, offset) for offset in letters)
            if dead_too:
                self.dead.position[partition] = max(stood, end)
        if of_sink:
            self.sink.commit(of_sink)
        if of_dead:
            self.dead.commit(of_dead)

    def reset(self, partition: TopicPartition, to: int) -> None:
        """An operator moves the stream."""
        at = self.stands(partition)
        to = min(to, len(self.fates[partition]))
        if to == at or partition not in self.sink.position:
            return
        kind = "passed" if to > at else "again"
        said = {"answer": "reset", "note": "ada: trying it"}
        for side in (self.dead, self.sink):
            if side is self.sink or kind == "again":
                side.position[partition] = to
                side.commit([(kind, partition, OffsetRange(min(at, to), max(at, to)), said)])

    def lose(self, partition: TopicPartition, size: int) -> None:
        """Retention removes what was not read, and an operator goes on behind it."""
        at = self.stands(partition)
        end = min(at + size, len(self.fates[partition]))
        if end > at and partition in self.sink.position:
            self.sink.position[partition] = end
            said = {"answer": "lost_offsets", "note": "ada: gone"}
            self.sink.commit([("passed", partition, OffsetRange(at, end), said)])

    def roll_back(self, steps: int, answer: str) -> None:
        """The sink is rolled back by some commits, and an operator answers."""
        # Not to before a topic was created anew: the stop for that comes first then.
        since = max(self.floor, self.sink.sequence - steps)
        if steps <= 0 or since == self.sink.sequence:
            return
        stood = dict(self.sink.position)
        rows, position = self.sink.past[since]
        self.sink.rows, kept = Counter(rows), {p: position.get(p, 0) for p in stood}
        self.sink.position = stood if answer == "rollback_keep" else {p: kept[p] for p in stood}
        said = {"answer": answer, "note": "ada: wrong load"}
        entries: list[Any] = [("removed", p, OffsetRange(kept[p], stood[p]), {**said, "since": since}) for p in stood]
        for partition, at in kept.items():
            end = stood[partition]
            if end > at:
                kind = "passed" if answer == "rollback_keep" else "again"
                entries.append((kind, partition, OffsetRange(at, end), said))
            elif answer == "rollback_keep" and end < at:
                entries.append(("again", partition, OffsetRange(end, at), said))
        entries = entries or [("removed", WHOLE_TABLE, NO_RANGE, {**said, "since": since})]
        self.sink.commit(entries)

    def recreate_topic(self, partition: TopicPartition, fates: Sequence[str], begin: int) -> None:
        """The topic is made anew, and an operator has it read from its beginning."""
        if partition not in self.sink.position:
            return
        said = {"answer": "recreated_topic", "note": "ada: new topic"}
        for side in (self.dead, self.sink):
            at = side.position.pop(partition, 0)
            side.commit([("again", partition, OffsetRange(0, at), said)])
        self.floor = self.sink.sequence
        self.fates[partition] = list(fates)
        self.begin[partition] = min(begin, len(fates))


def audited(sink: Side, dead: Side, *, window: int = 7) -> StreamAudit:
    """Audit tables against ledger, without catalog and files."""
    found = StreamAudit("payments", full=True)
    of_sink, of_dead = expected_rows(SINK_TARGET, sink.ledger), expected_rows(DEAD_TARGET, dead.ledger)
    found.tables = [TableAudit(SINK_TARGET), TableAudit(DEAD_TARGET)]
    totals = AuditTotals(found)
    for each in (of_sink, of_dead):
        totals.add_expected(each)
        found.decisions += each.decisions
    agreement = DeadLetterAgreement(of_sink, of_dead)
    problems, pending = agreement.judge()
    found.problems += problems
    found.pending += pending

    def count(ranges: Sequence[PartitionRange]) -> tuple[dict[TargetSpec, list[np.ndarray]], list[np.ndarray]]:
        assert sum(each.range.end - each.range.start for each in ranges) <= window
        in_sink, in_dead = ([_counts(side.rows, each) for each in ranges] for side in (sink, dead))
        return {SINK_TARGET: in_sink, DEAD_TARGET: in_dead}, [np.zeros_like(each) for each in in_sink]

    every = compared_ranges({SINK_TARGET: of_sink.groups, DEAD_TARGET: of_dead.groups}, dict.fromkeys(TARGETS, 0))
    for comparison in compare_rows(range_windows(every, window), TARGETS, count, agreement.covers):
        totals.add_comparison(comparison)
    for each in (of_sink, of_dead):
        totals.judge_totals(each, 0)
    found.add_up()
    return found


def _counts(rows: Counter[At], range_: PartitionRange) -> np.ndarray:
    start, end = range_.range
    return np.array([min(MANY, rows[range_.partition, offset]) for offset in range(start, end)], np.uint8)
