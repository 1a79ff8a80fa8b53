"""Difference of two previews of the same records: which would become something else, and how. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from jobs.records.schema.iceberg_schema import with_null
from jobs.records.schema.needs import Coordinates
from jobs.streaming.preview.record import PreviewedRecord, PreviewedTable, StreamPreview
from jobs.streaming.preview.values import Row, same_value

Verdict: TypeAlias = Literal["same", "changed", "lost"]
"""`lost`: a record that landed in a table would not, or in fewer tables."""

ColumnChangeKind: TypeAlias = Literal["added", "removed", "changed"]

_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A value of a row that would be another one.

    Attributes:
        table: That has the row now.
        other: That would have it.
        before: Of a column that is not `added`; as it is, nothing is masked.
        after: Of one that is not `removed`; likewise.
    """

    table: str
    other: str
    column: str
    kind: ColumnChangeKind
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A record of which something else would become.

    Attributes:
        columns: Of rows that it has in both.
    """

    before: PreviewedRecord
    after: PreviewedRecord
    columns: tuple[ColumnChange, ...] = ()

    @property
    def at(self) -> Coordinates:
        """Where the record is."""
        return self.before.at

    @property
    def moves(self) -> bool:
        """Whether it has another fate, or rows in other tables."""
        return fate(self.before) != fate(self.after)

    @property
    def loses(self) -> bool:
        """Whether it has fewer rows than now."""
        return len(self.after.rows) < len(self.before.rows)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A column of a table that would be of another type, or there no more; None where it is not there."""

    table: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class PreviewDifference:
    """What another file would change.

    Attributes:
        records: How many were looked at.
        changes: Of those that would become something else, by their coordinates.
        types: Of the tables' columns.
    """

    records: int
    changes: tuple[RecordChange, ...]
    types: tuple[TypeChange, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        if any(each.loses for each in self.changes):
            return "lost"
        return "changed" if self.changes or self.types else "same"

    @property
    def lost(self) -> int:
        """Records that would have fewer rows than now."""
        return sum(each.loses for each in self.changes)

    @property
    def moves(self) -> dict[tuple[str, str], list[RecordChange]]:
        """Changes of fate, by what they are from and to; the most frequent first."""
        found: dict[tuple[str, str], list[RecordChange]] = {}
        for each in self.changes:
            if each.moves:
                found.setdefault((fate(each.before), fate(each.after)), []).append(each)
        return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))

    @property
    def columns(self) -> dict[tuple[str, str, ColumnChangeKind], list[tuple[RecordChange, ColumnChange]]]:
        """Changes of values, by table, column and kind; the most frequent first."""
        found: dict[tuple[str, str, ColumnChangeKind], list[tuple[RecordChange, ColumnChange]]] = {}
        for each in self.changes:
            for column in each.columns:
                found.setdefault((column.other, column.column, column.kind), []).append((each, column))
        return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))


def difference(now: StreamPreview, then: StreamPreview) -> PreviewDifference:
    """What another file would make otherwise of the same records.

    Raises:
        ValueError: They are of other records.
    """
    if now.records.keys() != then.records.keys():
        raise ValueError("two previews of the same records are compared, and these are of others")
    changes: list[RecordChange] = []
    for at, before in now.records.items():
        change = RecordChange(before, then.records[at], tuple(_columns(before, then.records[at])))
        if change.moves or change.columns:
            changes.append(change)
    return PreviewDifference(len(now.records), tuple(changes), tuple(_types(now.tables, then.tables)))


def fate(record: PreviewedRecord) -> str:
    """What becomes of a record, in words: rows in these tables, or why it has none.

    The place of a step in its list is left out: a step that is put before it changes nothing.
    """
    if record.letter is not None:
        field = f" at {_INDEX.sub('[]', record.letter.field)}" if record.letter.field else ""
        return f"dead: {record.letter.error_class} in {_INDEX.sub('', record.letter.stage)}{field}"
    if record.outcome == "landed":
        return f"landed in {', '.join(sorted(record.rows))}"
    return record.outcome.replace("_", " ")


def _columns(before: PreviewedRecord, after: PreviewedRecord) -> Iterator[ColumnChange]:
    for table, other in _pairs(tuple(before.rows), tuple(after.rows)):
        yield from _changed(table, other, before.rows[table], after.rows[other])


def _pairs(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, str]]:
    """Which table's rows are compared: those of one name, and one that has taken the place of one."""
    left, right = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    pairs = [(name, name) for name in sorted(set(before) & set(after))]
    return [*pairs, (left[0], right[0])] if len(left) == len(right) == 1 else pairs


def _changed(table: str, other: str, before: Row, after: Row) -> Iterator[ColumnChange]:
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            yield ColumnChange(table, other, name, "removed", before[name])
        elif name not in before:
            yield ColumnChange(table, other, name, "added", after=after[name])
        elif not same_value(before[name], after[name]):
            yield ColumnChange(table, other, name, "changed", before[name], after[name])


def _types(now: Sequence[PreviewedTable], then: Sequence[PreviewedTable]) -> Iterator[TypeChange]:
    tables, others = ({each.name: each for each in side if each.role == "rows"} for side in (now, then))
    for name, other in _pairs(tuple(tables), tuple(others)):
        before, after = _column_types(tables[name]), _column_types(others[other])
        for column in dict.fromkeys((*before, *after)):
            if before.get(column) != after.get(column):
                yield TypeChange(other, column, before.get(column), after.get(column))


def _column_types(table: PreviewedTable) -> Mapping[str, str]:
    return {each.name: with_null(each) for each in table.schema.fields}
