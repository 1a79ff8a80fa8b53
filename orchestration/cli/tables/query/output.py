"""Output of `frazil query`: a table within the terminal's width, JSON or CSV."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa

from orchestration.cli.common.terminal import print_json, visible

TERMINAL_ROWS = 1_000
_WIDTH, _GAP, _WIDEST_CELL = 80, 2, 40
_NULL = "–"


def json_cell(value: Any) -> Any:
    """Value for JSON: decimals, NaN and infinity become text, times are in UTC, bytes are hexadecimal."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return _utc(value, "T")
        case date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(name): json_cell(each) for name, each in value.items()}
        # Arrow gives intervals as named tuples.
        case tuple() if hasattr(value, "_fields"):
            return str(value)
        case Sequence():
            return [json_cell(each) for each in value]
        case _:
            return str(value)


def text_cell(value: Any) -> str:
    """Text of a value for a terminal or for CSV; bytes become text if they are printable UTF-8."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return _utc(value, " ")
        case bytes():
            try:
                text = value.decode()
            except UnicodeDecodeError:
                return value.hex()
            return text if all(char.isprintable() or char in "\t\n\r" for char in text) else value.hex()
        case str():
            return value
    shown = json_cell(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _utc(value: datetime, separator: str) -> str:
    if value.tzinfo is None:
        return value.isoformat(separator)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(separator) + "Z"


def print_as_json(reader: pa.RecordBatchReader, limit: int | None, facts: Mapping[str, Any]) -> None:
    """Print one JSON document with the facts, the columns with their Arrow types, and the rows."""
    columns = [{"name": field.name, "type": str(field.type)} for field in reader.schema]
    names = [field.name for field in reader.schema]
    rows = [dict(zip(names, map(json_cell, row), strict=True)) for row in _rows(reader, limit)]
    print_json({**facts, "columns": columns, "rows": rows})


def print_as_csv(reader: pa.RecordBatchReader, limit: int | None) -> None:
    """Print rows as CSV below a line of names, each as it comes; null is an empty field."""
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow([field.name for field in reader.schema])
    for row in _rows(reader, limit):
        out.writerow(map(text_cell, row))
    sys.stdout.flush()


def print_as_table(reader: pa.RecordBatchReader, limit: int | None) -> None:
    """Print rows as a table if they fit the terminal, else as a block for each row with a line for each column."""
    rows = list(_rows(reader, (limit or TERMINAL_ROWS) + 1))
    more, rows = len(rows) > (limit or TERMINAL_ROWS), rows[: limit or TERMINAL_ROWS]
    names = [visible(field.name) for field in reader.schema]
    cells = [[_NULL if value is None else visible(text_cell(value)) for value in row] for row in rows]
    width = max(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns) if sys.stdout.isatty() else _WIDTH
    right = [_is_number(field.type) for field in reader.schema]
    lines = _wide(names, cells, right, width) or _tall(names, cells, width)
    for line in lines:
        click.echo(line)
    count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    click.echo(f"({count}{', and more: --limit N, --csv or --json show them' if more else ''})")


def _rows(reader: pa.RecordBatchReader, limit: int | None) -> Iterator[tuple[Any, ...]]:
    left = limit
    for batch in reader:
        taken = batch if left is None else batch.slice(0, left)
        yield from zip(*map(_values, taken.columns), strict=True)
        if left is not None and (left := left - taken.num_rows) <= 0:
            return


def _values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        # Python lacks times and dates beyond its years, such as DuckDB's infinity.
        return column.cast(pa.string()).to_pylist()


def _wide(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[str] | None:
    """Lines of a table; None if a line, or a cell, is too wide."""
    columns = [[name, *(row[index] for row in rows)] for index, name in enumerate(names)]
    widths = [max(map(text_width, column)) for column in columns]
    if sum(widths) + _GAP * (len(widths) - 1) > width or max(widths, default=0) > max(_WIDEST_CELL, width // 2):
        return None

    def line(cells: Iterable[str]) -> str:
        padded = (
            " " * (size - text_width(cell)) + cell if at_end else cell + " " * (size - text_width(cell))
            for cell, size, at_end in zip(cells, widths, right, strict=True)
        )
        return (" " * _GAP).join(padded).rstrip()

    return [line(names), *map(line, rows)]


def _tall(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    longest = min(max(map(text_width, names), default=0), width // 2)
    for number, row in enumerate(rows, 1):
        yield f"row {number}"
        for name, cell in zip(names, row, strict=True):
            shown = _cut(name, longest)
            yield f"  {shown}{' ' * (longest - text_width(shown))}  {_cut(cell, width - longest - 4)}"


def _cut(text: str, width: int) -> str:
    # A cell may contain a whole record, so only its shown part is measured.
    used = kept = 0
    for at, char in enumerate(text):
        if used < width:
            kept = at
        used += text_width(char)
        if used > width:
            return f"{text[:kept]}…"
    return text


def text_width(text: str) -> int:
    """Width of a text in columns of a terminal: two for wide characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _is_number(column_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(column_type) or types.is_floating(column_type) or types.is_decimal(column_type)
