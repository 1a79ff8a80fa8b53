"""Rescued data: the columns that keep, as JSON text, the fields and values that no other column takes.

`_extra` keeps the fields without a column. `NAME_text` beside column NAME keeps values that NAME does not take.
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from jobs.records.schema.needs import Need, Path

EXTRA_COLUMN = "_extra"
EXTRA_PLACE = f"$.{EXTRA_COLUMN}"
"""The JSON path under which records are refused if the table may not get the column."""
EXTRA_NEED = Need("add", (EXTRA_COLUMN,), StringType())
"""The need of a record if the table lacks the column."""

_TEXT_SUFFIX = "_text"


def text_column(path: Path) -> Path:
    """Return the path of the text column beside a column, for the values that it does not take."""
    return (*path[:-1], path[-1] + _TEXT_SUFFIX)


def with_extra_column(rows: Schema) -> Schema:
    """Return the columns, with the one for fields that no other takes."""
    if EXTRA_COLUMN in {each.name for each in rows.fields}:
        return rows
    return Schema(*rows.fields, NestedField(rows.highest_field_id + 1, EXTRA_COLUMN, StringType(), required=False))


def without_extra_column(rows: Schema) -> Schema:
    """Return the columns that fields of records may fill."""
    return Schema(*(each for each in rows.fields if each.name != EXTRA_COLUMN))
