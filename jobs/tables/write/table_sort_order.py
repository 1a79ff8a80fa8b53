"""Sort orders of tables, from the columns in a stream's file.

A table's sort order is a request to its writers. Spark's own writes follow it. frazil's files keep the order of
consumption, and name no sort order.
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
        columns: Columns checked by `jobs.config.values.partitioning.sort_column_problems`; none makes an unsorted
            table.
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
    """The sort order that a table requests from its writers."""
    return metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER
