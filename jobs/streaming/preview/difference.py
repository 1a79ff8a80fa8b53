"""Difference of two previews of the same records: which records change, and how. Pure functions."""

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
"""`lost`: a record that landed in a table would no longer land, or in fewer tables."""

ColumnChangeKind: TypeAlias = Literal["added", "removed", "changed"]

_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A value of a row that would change.

    Attributes:
        table: Table with the row now.
        other: Table that would have it.
        before: Unmasked value now, unless the column is `added`.
        after: Unmasked value then, unless the column is `removed`.
    """

    table: str
    other: str
    column: str
    kind: ColumnChangeKind
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A record whose fate or rows would change.

    Attributes:
        columns: Changes of the rows that it has in both previews.
    """

    before: PreviewedRecord
    after: PreviewedRecord
    columns: tuple[ColumnChange, ...] = ()

    @property
    def at(self) -> Coordinates:
        """Coordinates of the record."""
        return self.before.at

    @property
    def moves(self) -> bool:
        """Whether its fate changes, or the tables of its rows."""
        return fate(self.before) != fate(self.after)

    @property
    def loses(self) -> bool:
        """Whether it has fewer rows than now."""
        return len(self.after.rows) < len(self.before.rows)


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A column of a table whose type would change, or that would be removed; None if it does not exist."""

    table: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class PreviewDifference:
    """Effects of another file.

    Attributes:
        records: Number of compared records.
        changes: Changed records, by coordinates.
        types: Changed columns of the tables.
    """

    records: int
    changes: tuple[RecordChange, ...]
    types: tuple[TypeChange, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Overall verdict."""
        if any(each.loses for each in self.changes):
            return "lost"
        return "changed" if self.changes or self.types else "same"

    @property
    def lost(self) -> int:
        """Number of records that would have fewer rows than now."""
        return sum(each.loses for each in self.changes)

    @property
    def moves(self) -> dict[tuple[str, str], list[RecordChange]]:
        """Changes of fate, by the former and the new one; the most frequent first."""
        found: dict[tuple[str, str], list[RecordChange]] = {}
        for each in self.changes:
            if each.moves:
                found.setdefault((fate(each.before), fate(each.after)), []).append(each)
        return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))

    @property
    def columns(self) -> dict[tuple[str, str, ColumnChangeKind], list[tuple[RecordChange, ColumnChange]]]:
        """Changes of values, by table, column and type of change; the most frequent first."""
        found: dict[tuple[str, str, ColumnChangeKind], list[tuple[RecordChange, ColumnChange]]] = {}
        for each in self.changes:
            for column in each.columns:
                found.setdefault((column.other, column.column, column.kind), []).append((each, column))
        return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))


def difference(now: StreamPreview, then: StreamPreview) -> PreviewDifference:
    """Compare what two files make of the same records.

    Raises:
        ValueError: The previews are of different records.
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
    """Fate of a record, in words: rows in these tables, or why it has none.

    The index of a step is left out, so that a step inserted before it changes nothing.
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
    """Pairs of tables whose rows are compared: those with one name, and one that replaced another."""
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
