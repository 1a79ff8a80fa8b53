"""Adding up an audit: sums per partition, and what is wrong, from what was read and what was counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.audit import Expected
from jobs.verify.audit_count import Counted
from jobs.verify.audit_facts import Line, Problem, StreamAudit, TableAudit, Unit
from jobs.verify.audit_found import Found


@dataclass(slots=True)
class Book:
    """Where an audit is written down as it goes.

    Attributes:
        audit: What is filled.
        tables: Its tables by name.
        expired: Letters of batches before this instant may be gone; None if all are there.
        came_back: Rows that are taken for those of letters that came back, and have expired since.
    """

    stream: str
    audit: StreamAudit
    tables: Mapping[str, TableAudit]
    expired: datetime | None = None
    came_back: int = 0
    _lines: dict[tuple[str, TopicPartition], Line] = field(default_factory=dict)
    # Of units that no stamp alone says the rows of: rows that stand there, and what those stamps that do say.
    _unsaid: dict[str, list[int]] = field(default_factory=dict)

    def note_expected(self, found: Expected, after: int = 0) -> None:
        """Take in what the ledger says of a table.

        Args:
            after: Of ranges without a later commit than this the rows are not counted, so the sums leave them out.
        """
        facts = self.tables[found.table]
        facts.unknown = list(found.unknown)
        self.audit.problems += found.problems
        for unit in found.all_units():
            if unit.newest > after:
                self._line(found.table, unit).counts += unit.counts

    def _line(self, table: str, unit: Unit) -> Line:
        """The sums of a unit's partition, which reach as far as the unit."""
        line = self._lines.get((table, unit.partition))
        if line is None:
            line = self._lines[table, unit.partition] = Line(unit.partition, *unit.range)
            self.tables[table].lines.append(line)
        line.start, line.end = min(line.start, unit.range.start), max(line.end, unit.range.end)
        return line

    def note_counted(self, block: Counted) -> None:
        """Take in what stands in the tables of one block."""
        partition, range_ = block.block.partition, block.block.range
        in_both = block.in_both if block.apart else 0
        for target, founds in block.found.items():
            of_rows = target.role == "rows"
            for found in founds:
                missing = found.missing(answered=self._answered(partition, range_))
                if of_rows and missing < 0 and self.expired is not None:
                    allowed = min(-missing, found.dead_before(self.expired))
                    missing += allowed
                    self.came_back += allowed
                # A row too many of a record that is a dead letter is that one, and is told once.
                too_many = min(-missing, in_both) if of_rows and missing < 0 else 0
                among = block.both.kept if too_many and too_many == -missing == block.in_both else []
                in_both -= too_many
                self._note_found(target.name, found, missing, among, apart=block.apart)
        dead = next((name for name, facts in self.tables.items() if facts.target.role == "dead_letters"), "")
        if block.stray:
            said = f"{block.stray:,} dead letters stand there that no batch put there"
            self._problem("unexpected", dead, partition, range_, block.stray, said, block.strays.kept)
        if in_both:
            rows = " or ".join(name for name, facts in self.tables.items() if facts.target.role == "rows")
            said = f"{in_both:,} records stand in {rows} and among the dead letters, too"
            self._problem("both", dead, partition, range_, in_both, said, block.both.kept)

    def _answered(self, partition: TopicPartition, range_: OffsetRange) -> bool:
        return any(
            each.kind in ("again", "passed")
            and each.partition == partition
            and each.range.start < range_.end
            and range_.start < each.range.end
            for each in self.audit.decisions
        )

    def _note_found(self, table: str, found: Found, missing: int, among: list[OffsetRange], *, apart: bool) -> None:
        line = self._line(table, found.unit)
        line.ranges += 1
        line.rows = (line.rows or 0) + found.present
        self.audit.problems += found.problems(table, missing, among, apart=apart)
        if found.unit.rows is None:
            sums = self._unsaid.setdefault(table, [0, 0])
            sums[0] += found.present - found.surplus
            sums[1] += sum(reading.rows or 0 for reading in found.unit.readings)

    def judge_totals(self, found: Expected, after: int) -> None:
        """Hold the ranges of which no stamp tells by itself against the sums that do."""
        present, said = self._unsaid.get(found.table, [0, 0])
        mixed = any(
            unit.rows is None and unit.newest > after and any(each.sequence <= after for each in unit.readings)
            for unit in found.all_units()
        )
        sums = [rows for sequence, rows in found.whole if sequence > after]
        if found.table not in self._unsaid or not sums or mixed:
            return
        wanted = said + sum(sums)
        if present != wanted:
            words = f"ranges without stamps of their own hold {present:,} rows, and the running totals say {wanted:,}"
            kind = "missing" if present < wanted else "unexpected"
            self.audit.problems.append(
                Problem(kind, found.table, None, None, abs(wanted - present), words, exact=False)
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
        self.audit.problems.append(Problem(kind, table, partition, range_, records, said, tuple(where)))
