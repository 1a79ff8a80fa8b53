"""Landed records of an audit: whether every record that the coordinator counts as landed has a row in some table.

Each table is held against its own stamps. A table that lacks a whole commit has no stamp of it, so nothing is missing
there by its own word. The coordinator's counts tell: of a range, as many records landed as offsets have a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jobs.commit.offsets import OffsetRange, Positions, Ranges, TopicPartition
from jobs.verify.audit_ranges import ranges_overlap
from jobs.verify.audit_result import AuditProblem, OperatorDecision
from jobs.verify.audited_tables import AuditedTable
from jobs.verify.found_rows import RangeComparison

# Answers after which a table begins anew, and lacks what it had, or what it was about to get.
_BEGINS_ANEW = ("recreated_table", "parked", "unparked")


class LandedRecords:
    """Compares the coordinator's counts with the offsets that have a row.

    Args:
        coordinator: The coordinator.
        decisions: What operators decided, on all tables.
        former: By partition, up to where tables received records that the stream does not have any more.
        undecided: Ranges of a batch that is not in all tables yet.
        begins: By partition, the first offset whose rows have not expired.
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
        """What is wrong with a range; None if as many records landed as have rows, or nobody can say.

        Args:
            missing: Rows of the range that single tables lack by their own stamps, over all tables.
            answered: Whether an operator's answer was about the range.
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
    """Whether the rows of all tables of rows say which records they are of."""
    of_rows = [each for each in audited if each.target.role == "rows"]
    return bool(of_rows) and all(each.table is not None and each.facts.method == "rows" for each in of_rows)
