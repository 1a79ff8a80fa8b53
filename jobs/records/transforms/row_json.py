"""Row as JSON, for people: the row before the step that refused it, cut if it is long."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

MOST_CHARACTERS = 4_096
"""Limit of characters of a row's JSON; one value gets at most a quarter."""


def row_json(batch: pa.RecordBatch, row: int, *, hidden: bool = False) -> str:
    """Return a row as JSON text of at most `MOST_CHARACTERS`.

    Args:
        batch: Rows.
        row: Index of the row.
        hidden: Whether only the kind of each value is shown.
    """
    values = zip(batch.schema.names, (value_of(column, row) for column in batch.columns), strict=True)
    shown = {name: _kind(value) if hidden else _short(value) for name, value in values}
    text = json.dumps(shown, ensure_ascii=False, default=_plain, separators=(",", ":"))
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def value_of(column: pa.Array, row: int) -> Any:
    """Return a value of a column for Python; as text if Python has none for it, such as a date behind the year 9999."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError):
        return "?" if pa.types.is_nested(column.type) else str(column.slice(row, 1).cast(pa.string())[0])


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MOST_CHARACTERS // 4:
        return value[: MOST_CHARACTERS // 4] + "…"
    if isinstance(value, bytes) and len(value) > MOST_CHARACTERS // 8:
        return value[: MOST_CHARACTERS // 8]
    return value


def _kind(value: Any) -> Any:
    return None if value is None else f"({type(value).__name__})"


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)
