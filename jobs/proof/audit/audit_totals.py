"""Totals of an audit: sums per partition, and problems, from expected and found rows.

Tables whose rows lack coordinates are compared by the summaries of their snapshots. This module also checks that each
record counted as landed by the coordinator has a row in some table: a table that lacks a whole commit lacks nothing by
its own stamps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.proof.audit.audit_ranges import BatchRange, RangeGroup, ranges_overlap
from jobs.proof.audit.audit_result import (
    AuditProblem,
    OperatorDecision,
    PartitionSums,
    StreamAudit,
    TableAudit,
)
from jobs.proof.audit.audited_tables import AuditedTable
from jobs.proof.audit.expected_rows import ExpectedRows
from jobs.proof.audit.found_rows import FoundRows, RangeComparison
from jobs.tables.commit.history.branch import branch_of
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import last_remade
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
)

# Answers after which a table begins anew, without its earlier rows or those that it was about to get.
_BEGINS_ANEW = ("recreated_table", "parked", "unparked")


@dataclass(slots=True)
class AuditTotals:
    """Adds up an audit in progress.

    Attributes:
        audit: Audit that is filled; its tables are set.
        expired: Time before which batches may lack dead letters; None if all exist.
        came_back: Rows attributed to replayed dead letters that have expired since.
    """

    audit: StreamAudit
    expired: datetime | None = None
    came_back: int = 0
    _sums: dict[tuple[str, TopicPartition], PartitionSums] = field(default_factory=dict)
    # Sums for groups without stamps of all their rows: existing rows, and rows by those stamps that exist.
    _unstamped: dict[str, list[int]] = field(default_factory=dict)

    def table(self, name: str) -> TableAudit:
        """The audit of the table of this name."""
        return next(table for table in self.audit.tables if table.table == name)

    def add_expected(self, found: ExpectedRows, after: int = 0) -> None:
        """Add what the ledger expects of a table.

        Args:
            after: Rows of ranges without a commit after this one are not counted, so the sums leave them out.
        """
        self.table(found.table).unknown = list(found.unknown)
        self.audit.problems += found.problems
        for group in found.all_groups():
            if group.newest > after:
                self._sums_of(found.table, group).counts += group.counts

    def _sums_of(self, table: str, group: RangeGroup) -> PartitionSums:
        """Sums of a group's partition, extended to the group's end."""
        sums = self._sums.get((table, group.partition))
        if sums is None:
            sums = self._sums[table, group.partition] = PartitionSums(group.partition, *group.range)
            self.table(table).partitions.append(sums)
        sums.start, sums.end = min(sums.start, group.range.start), max(sums.end, group.range.end)
        return sums

    def add_comparison(self, comparison: RangeComparison, landed: LandedRecords | None = None) -> None:
        """Add the rows found for one compared range.

        Args:
            landed: Compares it with the coordinator's counts; None if that is impossible.
        """
        partition, range_ = comparison.compared.partition, comparison.compared.range
        in_both = comparison.in_both if comparison.apart else 0
        answered, lacking = self._answered(partition, range_), 0
        for target, founds in comparison.found.items():
            of_rows = target.role == "rows"
            for found in founds:
                missing = found.missing(answered=answered)
                lacking += max(0, missing) if of_rows else 0
                if of_rows and missing < 0 and self.expired is not None:
                    allowed = min(-missing, found.dead_before(self.expired))
                    missing += allowed
                    self.came_back += allowed
                # A surplus row of a record that is a dead letter is reported once, as that record.
                too_many = min(-missing, in_both) if of_rows and missing < 0 else 0
                among = comparison.both.kept if too_many and too_many == -missing == comparison.in_both else []
                in_both -= too_many
                self._add_found(target.name, found, missing, among, apart=comparison.apart)
        if landed is not None and (problem := landed.judge(comparison, lacking, answered=answered)):
            self.audit.problems.append(problem)
        dead = next((table.table for table in self.audit.tables if table.target.role == "dead_letters"), "")
        if comparison.stray:
            said = f"{comparison.stray:,} dead letters exist that no batch wrote"
            self._problem("unexpected", dead, partition, range_, comparison.stray, said, comparison.strays.kept)
        if in_both:
            rows = " or ".join(table.table for table in self.audit.tables if table.target.role == "rows")
            said = f"{in_both:,} records are both in {rows} and among the dead letters"
            self._problem("both", dead, partition, range_, in_both, said, comparison.both.kept)

    def _answered(self, partition: TopicPartition, range_: OffsetRange) -> bool:
        return any(
            each.kind in ("again", "passed") and each.partition == partition and ranges_overlap(each.range, range_)
            for each in self.audit.decisions
        )

    def _add_found(self, table: str, found: FoundRows, missing: int, among: list[OffsetRange], *, apart: bool) -> None:
        sums = self._sums_of(table, found.group)
        sums.ranges += 1
        sums.rows = (sums.rows or 0) + found.present
        self.audit.problems += found.problems(table, missing, among, apart=apart)
        if found.group.rows is None:
            unstamped = self._unstamped.setdefault(table, [0, 0])
            unstamped[0] += found.present - found.surplus
            unstamped[1] += sum(batch.rows or 0 for batch in found.group.batches)

    def judge_totals(self, found: ExpectedRows, after: int) -> None:
        """Compare ranges without their own stamp with the sums that include them."""
        present, said = self._unstamped.get(found.table, [0, 0])
        mixed = any(
            group.rows is None and group.newest > after and any(each.sequence <= after for each in group.batches)
            for group in found.all_groups()
        )
        sums = [rows for sequence, rows in found.whole if sequence > after]
        if found.table not in self._unstamped or not sums or mixed:
            return
        wanted = said + sum(sums)
        if present != wanted:
            words = f"ranges without stamps of their own have {present:,} rows, and the running totals have {wanted:,}"
            kind = "missing" if present < wanted else "unexpected"
            self.audit.problems.append(
                AuditProblem(kind, found.table, None, None, abs(wanted - present), words, exact=False)
            )

    def _problem(
        self,
        kind,
        table: str,
        partition: TopicPartition,
        range_: OffsetRange,
        records: int,
        said: str,
        where: list[OffsetRange],
    ) -> None:
        self.audit.problems.append(AuditProblem(kind, table, partition, range_, records, said, tuple(where)))


def compare_summaries(table: Table, found: ExpectedRows, after: int, totals: AuditTotals) -> None:
    """Compare each batch's rows with the number that Iceberg's summary says its snapshot added.

    It proves that every batch landed completely and once, but nothing about its rows later.

    Args:
        after: Sequence number up to which batches were compared before.
    """
    batches: dict[int, list[tuple[TopicPartition, BatchRange]]] = defaultdict(list)
    for group in found.all_groups():
        for batch in group.batches:
            if batch.sequence > after:
                batches[batch.snapshot_id].append((group.partition, batch))
    left_out = _left_out(table.metadata, branch_of(table))
    for snapshot_id, landed in batches.items():
        rows = sum(batch.rows or 0 for _, batch in landed)
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot_id in left_out and rows:
            added = 0
            sentence = f"snapshot {snapshot_id}, which landed {rows:,} rows, is not in the table's history any more"
        elif snapshot is None or snapshot.summary is None or any(batch.rows is None for _, batch in landed):
            totals.table(found.table).unchecked += 1
            continue
        else:
            added = int(snapshot.summary.additional_properties.get("added-records", 0))
            sentence = f"snapshot {snapshot_id} added {added:,} rows, and its stamp has {rows:,} landed"
        if added != rows:
            kind = "missing" if added < rows else "unexpected"
            partition, ranges = landed[0][0], tuple(batch.range for _, batch in landed)
            totals.audit.problems.append(
                AuditProblem(kind, found.table, partition, ranges[0], abs(rows - added), sentence, ranges, exact=False)
            )


def _left_out(metadata: TableMetadata, branch: str) -> set[int]:
    """Existing snapshots that are no ancestors of main's head, although equally old ancestors exist.

    A branch's state before its rebase is no ancestor, but its rows are there.
    """
    along = {each.snapshot_id: each.sequence_number or 0 for each in ancestors(metadata)}
    oldest = min(along.values(), default=0)
    if (remade := last_remade(metadata, branch)) is not None and remade.last in along.values():
        oldest = max(oldest, remade.last)
    return {
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in along and (each.sequence_number or 0) > oldest
    }


class LandedRecords:
    """Compares the coordinator's counts with the offsets that have a row.

    Args:
        decisions: Operators' decisions on all tables.
        former: Offset up to which tables that the stream no longer has received records, by partition.
        undecided: Ranges of a batch that some tables still lack.
        begins: First offset without expired rows, by partition.
    """

    def __init__(
        self,
        coordinator: AuditedTable,
        decisions: Sequence[OperatorDecision],
        former: Positions,
        undecided: Ranges,
        begins: Positions,
    ) -> None:
        self._coordinator: AuditedTable = coordinator
        self._undecided: Ranges = undecided
        self._first: Mapping[TopicPartition, int] = {
            partition: max(former.get(partition, 0), begins.get(partition, 0)) for partition in {*former, *begins}
        }
        self._anew: int = max((each.sequence for each in decisions if each.answer in _BEGINS_ANEW), default=0)

    def judge(self, comparison: RangeComparison, missing: int, *, answered: bool) -> AuditProblem | None:
        """Problem of a range; None if as many records landed as have rows, or if unknown.

        Args:
            missing: Rows of the range that single tables lack by their own stamps, over all tables.
            answered: Whether an operator's answer concerned the range.
        """
        partition, range_ = comparison.compared.partition, comparison.compared.range
        batches = comparison.compared.batches(self._coordinator.target)
        unknown = any(each.rows is None or not each.stamped or each.sequence <= self._anew for each in batches)
        open_ = self._undecided.get(partition, OffsetRange(0, 0))
        if answered or unknown or not batches or not comparison.once or ranges_overlap(range_, open_):
            return None
        if range_.start < self._first.get(partition, 0):
            return None
        landed = sum(each.counts.landed for each in batches)
        lacking = landed - comparison.offsets - missing
        if lacking <= 0:
            return None
        sentence = (
            f"{landed:,} records landed, and {comparison.offsets:,} offsets have a row in any table: {lacking:,} "
            "records are in none"
        )
        return AuditProblem(
            "sum", self._coordinator.name, partition, range_, lacking, sentence, (range_,), exact=False, surplus=False
        )


def counts_every_row(audited: Iterable[AuditedTable]) -> bool:
    """Whether the rows of all tables of rows have coordinates."""
    of_rows = [each for each in audited if each.target.role == "rows"]
    return bool(of_rows) and all(each.table is not None and each.facts.method == "rows" for each in of_rows)
