"""Column of kept fields: what a record has beside the columns, as JSON in one text."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

EXTRA_COLUMN = "_extra"


def with_extra_column(rows: Schema) -> Schema:
    """The columns, with the one that keeps what no other takes."""
    if EXTRA_COLUMN in {each.name for each in rows.fields}:
        return rows
    return Schema(*rows.fields, NestedField(rows.highest_field_id + 1, EXTRA_COLUMN, StringType(), required=False))
