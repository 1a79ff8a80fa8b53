"""Fitting: what a table has to become so that it takes rows of a schema. Pure.

Nothing is dropped, renamed or narrowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.schema.difference import Difference, differences
from jobs.schema.needs import Path, column_name
from jobs.schema.schema_change import SchemaChange, columns_in, columns_of
from jobs.schema.spark_types import unread_by_spark


@dataclass(frozen=True, slots=True)
class Fitting:
    """What becomes of a table.

    Attributes:
        changes: Additions, promotions and relaxed columns.
        refused: Why it would still not take the rows, as sentences without a full stop.
    """

    changes: tuple[SchemaChange, ...] = ()
    refused: tuple[str, ...] = ()


def fitting(
    rows: Schema,
    table: Schema,
    *,
    own: Collection[str],
    protected: Mapping[int, str],
    relax_missing: bool,
    maintained: bool = False,
) -> Fitting:
    """What lets a table take rows.

    Args:
        rows: Their columns, without those that frazil fills itself.
        table: The table's.
        own: The names of those.
        protected: Columns whose type has to stay, by field id, with the reason.
        relax_missing: Whether a required column that the rows lack is relaxed; otherwise it is refused.
        maintained: Spark has to read the table.
    """
    columns, changes, refused = dict(columns_of(table)), list[SchemaChange](), list[str]()
    names = {column_name(path) for path in columns}
    for difference in differences(rows, table, own=own):
        if difference.fits:
            continue
        needs, why = difference.needs, _kept(difference, columns, table, protected)
        if needs is not None and needs.change == "add":
            why = _unusable(needs.path, difference, names, maintained=maintained)
        if difference.kind == "gone" and not relax_missing:
            refused.append(f"{difference}, which requires it")
        elif needs is None or why:
            refused.append(f"{difference}; {why}" if why else str(difference))
        else:
            changes.append(SchemaChange(needs.change, needs.path, needs.type))
    return Fitting(tuple(changes), tuple(refused))


def _unusable(path: Path, difference: Difference, names: set[str], *, maintained: bool) -> str | None:
    """Why a column cannot be added."""
    if difference.rows is None:
        return None
    new = [column_name(each) for each, _ in columns_in(difference.rows, path)]
    if len({*new}) < len(new) or not names.isdisjoint(new):
        return "a nested column has the same name"
    names.update(new)
    if maintained and unread_by_spark(Schema(difference.rows)):
        return "maintenance reads no table with a column of the type time"
    return None


def _kept(
    difference: Difference, columns: Mapping[Path, NestedField], table: Schema, protected: Mapping[int, str]
) -> str | None:
    """Why a column has to stay as it is; None if it has not."""
    column = columns.get(difference.needs.path) if difference.needs else None
    if column is None or difference.needs is None:
        return None
    if difference.needs.change == "widen":
        return protected.get(column.field_id)
    return "it is an identifier field of the table" if column.field_id in table.identifier_field_ids else None
