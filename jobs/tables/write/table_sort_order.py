"""Sort orders of tables, from the columns that a stream's file names.

A table's sort order is what its writers are asked for. Spark's own writes follow it. frazil's files have their rows in
the order in which they were consumed, and say so: no file of theirs names a sort order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from jobs.config.values.partitioning import SortExpr


def sort_order(columns: Sequence[SortExpr], schema: Schema) -> SortOrder:
    """The sort order of a new table.

    Args:
        columns: As `jobs.config.values.partitioning.sort_column_problems` lets them pass; none makes an unsorted table.
    """
    if not columns:
        return UNSORTED_SORT_ORDER
    return SortOrder(*(_field(each, schema) for each in columns))


def _field(column: SortExpr, schema: Schema) -> SortField:
    descending = column.direction == "desc"
    nulls_last = column.nulls == "last" if column.nulls else descending
    return SortField(
        source_id=schema.find_field(column.column).field_id,
        transform=IdentityTransform(),
        direction=SortDirection.DESC if descending else SortDirection.ASC,
        null_order=NullOrder.NULLS_LAST if nulls_last else NullOrder.NULLS_FIRST,
    )


def sort_order_text(order: SortOrder, schema: Schema) -> str:
    """A sort order in words, such as `created_at desc nulls last, id asc nulls first`; `nothing` without fields."""
    words: list[str] = []
    for field in order.fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        of = column if isinstance(field.transform, IdentityTransform) else f"{field.transform}({column})"
        nulls = "last" if field.null_order == NullOrder.NULLS_LAST else "first"
        words.append(f"{of} {field.direction.value} nulls {nulls}")
    return ", ".join(words) or "nothing"


def sort_order_of(metadata: TableMetadata) -> SortOrder:
    """The sort order that a table asks its writers for."""
    return metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER
