"""Result of a comparison: which rows are equal, which differ and why, and which only one side has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from jobs.migration.comparison.staged_rows import MatchBy, Pair, SharedColumn
from jobs.migration.comparison.table_facts import TableFact
from jobs.migration.comparison.value_difference import SAME_MEANING, Reason, shown_value, value_differences
from jobs.records.schema.needs import Coordinates
from jobs.tables.commit.stamp.offsets import Ranges
from jobs.tables.dead_letter_table.masking import MARK

Verdict: TypeAlias = Literal["equal", "different"]


@dataclass(frozen=True, slots=True)
class Example:
    """A record with both values as they may be shown.

    Attributes:
        at: Coordinates of the record.
        ours: What frazil makes of the field.
        theirs: What the table holds.
    """

    at: Coordinates
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """Rows whose values of one field differ for one reason.

    Attributes:
        path: Column, with the fields below it.
        rows: How many rows.
    """

    path: str
    reason: Reason
    rows: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class AbsentRecords:
    """Records of one cause that make no row here.

    Attributes:
        cause: Why, such as `dead: out_of_range in decode at qty`, `filtered` or `tombstone`.
        records: How many.
        there: How many of them have a row in the table; None if nobody can tell without coordinates.
        message: What the dead letter of the first says; None without one.
        reason: What the table made of the value, if that is known.
        examples: With the field's text in the record, and its value in the table.
    """

    cause: str
    records: int
    there: int | None
    message: str | None = None
    reason: Reason | None = None
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True)
class OneSided:
    """Rows that only one side has.

    Attributes:
        rows: How many.
        examples: Places of some, with the values of the columns that both sides have.
    """

    rows: int = 0
    examples: tuple[tuple[Coordinates | None, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class MissingColumn:
    """A column that one side lacks, and in which the other has values.

    Attributes:
        here: Whether it is frazil's table that lacks it.
        rows: How many rows of the other side have a value in it.
    """

    column: str
    here: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows that a stream makes of records beside the rows of another table.

    Attributes:
        stream: Id of the stream.
        ours: Name of the stream's table whose rows are compared.
        theirs: Name of the other table.
        snapshot: Its snapshot that was read; None of an empty table.
        ranges: Offsets that were looked at.
        whole: Whether these are all records that the topics ever had.
        by: How rows were matched.
        key: Columns that rows were matched by, for `key`.
        records: How many records were read.
        rows_here: Rows that frazil makes of them.
        rows_there: Rows of the table that were looked at.
        matched: Rows with a partner.
        equal: Matched rows that mean the same in all columns that both sides have.
        differences: By column and reason, the most frequent first.
        only_here: Rows that the table lacks, up to the last record that it has of each partition.
        behind: Rows of records after that one: the sink may still commit them.
        only_there: Rows of the table that frazil makes of no record.
        not_judged: Rows of the table that may be of other records: those were not looked at, or have no coordinates.
        doubled: Rows of the table beyond the first of their record.
        absent: Records without a row here, by cause.
        missing: Columns with values that one side lacks.
        facts: Facts of both tables.
        marks: What the sink says in its newest snapshot.
        notes: What else is to be known, as sentences.
    """

    stream: str
    ours: str
    theirs: str
    snapshot: int | None
    ranges: Ranges
    whole: bool
    by: MatchBy
    key: tuple[str, ...]
    records: int
    rows_here: int
    rows_there: int
    matched: int
    equal: int
    differences: tuple[ColumnDifference, ...]
    only_here: OneSided
    behind: int
    only_there: OneSided
    not_judged: int
    doubled: int
    absent: tuple[AbsentRecords, ...]
    missing: tuple[MissingColumn, ...]
    facts: tuple[TableFact, ...]
    marks: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def different(self) -> int:
        """Matched rows that differ."""
        return self.matched - self.equal

    @property
    def verdict(self) -> Verdict:
        """`equal` if every row that can be judged is the same on both sides, and at least one was."""
        judged = self.matched or not (self.rows_here or self.rows_there)
        apart = (
            self.different or self.only_here.rows or self.only_there.rows or self.doubled or self.missing
            or any(each.there for each in self.absent)
        )  # fmt: skip
        return "equal" if judged and not apart else "different"


class DifferenceCounts:
    """Counts the differences of pairs of rows by column and reason, with the first examples of each.

    Args:
        columns: Shared columns, in the order of the pairs' values.
        examples: How many examples are kept of each column and reason.
        hides: Tells whether a column of ours may not be shown.

    Attributes:
        rows: Pairs that differ in what they mean, see `SAME_MEANING`.
    """

    def __init__(self, columns: Iterable[SharedColumn], examples: int, hides: Callable[[str], bool]) -> None:
        self.rows: int = 0
        self._columns: tuple[SharedColumn, ...] = tuple(columns)
        self._hidden: tuple[bool, ...] = tuple(hides(each.ours) for each in self._columns)
        self._examples: int = examples
        self._counts: dict[tuple[str, Reason], int] = {}
        self._kept: dict[tuple[str, Reason], list[Example]] = {}

    def add(self, pair: Pair) -> None:
        """Count what differs in a pair."""
        found: dict[tuple[str, Reason], Example | None] = {}
        for column, hidden, mine, other in zip(self._columns, self._hidden, pair.ours, pair.theirs, strict=True):
            for each in value_differences(column.ours, mine, other, column.our_type, column.their_type):
                at = (each.path, each.reason)
                if at in found:
                    continue
                example = None
                if len(self._kept.get(at, ())) < self._examples:
                    values = (MARK, MARK) if hidden else (
                        shown_value(each.ours, each.our_type), shown_value(each.theirs, each.their_type)
                    )  # fmt: skip
                    example = Example(Coordinates(*pair.place), *values)
                found[at] = example
        self.rows += any(reason not in SAME_MEANING for _, reason in found)
        for at, example in found.items():
            self._counts[at] = self._counts.get(at, 0) + 1
            if example is not None:
                self._kept.setdefault(at, []).append(example)

    def result(self) -> tuple[ColumnDifference, ...]:
        """The differences, the most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        return tuple(ColumnDifference(*at, rows, tuple(self._kept.get(at, ()))) for at, rows in ordered)
