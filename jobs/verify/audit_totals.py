"""Totals of an audit: sums per partition, and problems, from what was expected and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.audit_ranges import RangeGroup, ranges_overlap
from jobs.verify.audit_result import AuditProblem, PartitionSums, StreamAudit, TableAudit
from jobs.verify.expected_rows import ExpectedRows
from jobs.verify.found_rows import FoundRows, RangeComparison
from jobs.verify.landed_records import LandedRecords


@dataclass(slots=True)
class AuditTotals:
    """Adds up an audit as it goes on.

    Attributes:
        audit: What is filled; its tables are known.
        expired: Dead letters of batches before this instant may be gone; None if all are there.
        came_back: Rows that are taken for those of dead letters that came back, and have expired since.
    """

    audit: StreamAudit
    expired: datetime | None = None
    came_back: int = 0
    _sums: dict[tuple[str, TopicPartition], PartitionSums] = field(default_factory=dict)
    # Of groups that no stamp alone says the rows of: rows that stand there, and what those stamps that do say.
    _unstamped: dict[str, list[int]] = field(default_factory=dict)

    def table(self, name: str) -> TableAudit:
        """The audit of the table of this name."""
        return next(table for table in self.audit.tables if table.table == name)

    def add_expected(self, found: ExpectedRows, after: int = 0) -> None:
        """Take in what the ledger says of a table.

        Args:
            after: Of ranges without a later commit than this the rows are not counted, so the sums leave them out.
        """
        self.table(found.table).unknown = list(found.unknown)
        self.audit.problems += found.problems
        for group in found.all_groups():
            if group.newest > after:
                self._sums_of(found.table, group).counts += group.counts

    def _sums_of(self, table: str, group: RangeGroup) -> PartitionSums:
        """The sums of a group's partition, which reach as far as the group."""
        sums = self._sums.get((table, group.partition))
        if sums is None:
            sums = self._sums[table, group.partition] = PartitionSums(group.partition, *group.range)
            self.table(table).partitions.append(sums)
        sums.start, sums.end = min(sums.start, group.range.start), max(sums.end, group.range.end)
        return sums

    def add_comparison(self, comparison: RangeComparison, landed: LandedRecords | None = None) -> None:
        """Take in what stands in the tables of one compared range.

        Args:
            landed: Holds it against what the coordinator says; None: that cannot be done.
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
                # A row too many of a record that is a dead letter is that one, and is told once.
                too_many = min(-missing, in_both) if of_rows and missing < 0 else 0
                among = comparison.both.kept if too_many and too_many == -missing == comparison.in_both else []
                in_both -= too_many
                self._add_found(target.name, found, missing, among, apart=comparison.apart)
        if landed is not None and (problem := landed.judge(comparison, lacking, answered=answered)):
            self.audit.problems.append(problem)
        dead = next((table.table for table in self.audit.tables if table.target.role == "dead_letters"), "")
        if comparison.stray:
            said = f"{comparison.stray:,} dead letters stand there that no batch put there"
            self._problem("unexpected", dead, partition, range_, comparison.stray, said, comparison.strays.kept)
        if in_both:
            rows = " or ".join(table.table for table in self.audit.tables if table.target.role == "rows")
            said = f"{in_both:,} records stand in {rows} and among the dead letters, too"
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
        """Hold the ranges of which no stamp tells by itself against the sums that do."""
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
            words = f"ranges without stamps of their own hold {present:,} rows, and the running totals say {wanted:,}"
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
