"""Fitting: what a table has to become so that it takes rows of a schema. Pure.

Nothing is dropped, renamed or narrowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.schema.column_names import ColumnNames, partition_names
from jobs.schema.difference import Difference, differences
from jobs.schema.evolution import protected_columns
from jobs.schema.iceberg_schema import unread_by_spark
from jobs.schema.needs import Path
from jobs.schema.schema_change import SchemaChange, columns_in, columns_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


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
    metadata: TableMetadata,
    table: Schema | None = None,
    *,
    own: Collection[str],
    relax_missing: bool,
    maintained: bool = False,
) -> Fitting:
    """What lets a table take rows.

    Args:
        rows: Their columns, without those that frazil fills itself.
        metadata: The table's.
        table: Its columns, where some get other names before; without them as the metadata has them.
        own: The names of those.
        relax_missing: Whether a required column that the rows lack is relaxed; otherwise it is refused.
        maintained: Spark has to read the table.
    """
    table, specs = table or metadata.schema(), metadata.partition_specs
    protected = protected_columns(table, specs, metadata.sort_order_by_id(metadata.default_sort_order_id))
    columns, changes, refused = dict(columns_of(table)), list[SchemaChange](), list[str]()
    names = ColumnNames(table, partition_names(table, specs))
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


def _unusable(path: Path, difference: Difference, names: ColumnNames, *, maintained: bool) -> str | None:
    """Why a column cannot be added."""
    if difference.rows is None:
        return None
    if why := names.column_refusal(difference.rows, path):
        return why
    for each, _ in columns_in(difference.rows, path):
        names.add(each)
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
