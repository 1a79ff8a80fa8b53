"""Values of previewed rows: comparison, JSON, and masking.

Masked parts of a record are hidden in its rows, too. Before the transforms a masked field has its own column. After
them it may have any name. So a column is shown only if it equals an unmasked column before them; otherwise only the
types of its values are shown.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias

from pyiceberg.schema import Schema

from jobs.config.values.mask import Mask
from jobs.records.formats.record_columns import RecordColumns
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.schema.name_matching import NameRule
from jobs.records.schema.needs import Path
from jobs.records.schema.rescued_data import EXTRA_COLUMN, text_column
from jobs.tables.dead_letter_table.masking import MARK

Row: TypeAlias = Mapping[str, Any]
"""Python values by column, as Arrow returns them."""

LONGEST_TEXT = 1_024
"""Most characters of one value that are shown."""
_COORDINATES = ("topic", "partition", "offset", "timestamp", "timestamp_type")


def same_value(first: Any, second: Any) -> bool:
    """Whether two values are the same; NaN equals NaN, and true is not 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    match first, second:
        case (Mapping(), Mapping()):
            return first.keys() == second.keys() and all(same_value(first[name], second[name]) for name in first)
        case (list() | tuple(), list() | tuple()):
            return len(first) == len(second) and all(map(same_value, first, second))
        case (float(), float()):
            return first == second or (math.isnan(first) and math.isnan(second))
        case _:
            return first == second


def json_value(value: Any) -> Any:
    """A value for JSON: numbers that JSON does not hold exactly as text, bytes in Base64; long texts are cut."""
    match value:
        case None | bool() | int():
            return value
        case str():
            shown = value.encode("utf-8", "backslashreplace").decode()
            return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}…"
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return json_value(base64.b64encode(value).decode())
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(name): json_value(each) for name, each in value.items()}
        case Sequence():
            return [json_value(each) for each in value]
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class Hiding:
    """Hidden parts of rows.

    Attributes:
        masked: Paths of masked fields; they reach through lists.
        derived: Columns of which only the types of values are shown.
    """

    masked: tuple[Path, ...] = ()
    derived: frozenset[str] = frozenset()

    def shown(self, row: Row) -> Row:
        """The visible parts of the row."""
        if not self.masked and not self.derived:
            return row
        shown: dict[str, Any] = dict(row)
        for path in self.masked:
            shown = _hidden(shown, path)
        return {name: kind_of(value) if name in self.derived else value for name, value in shown.items()}

    def hides(self, column: str) -> bool:
        """Whether anything of a top-level column is hidden."""
        return column in self.derived or any(path[0].casefold() == column.casefold() for path in self.masked)


NOTHING_HIDDEN = Hiding()


def decoded_hiding(mask: Mask, rows: Schema, columns: RecordColumns, names: NameRule) -> Hiding:
    """Hidden parts of decoded rows.

    Args:
        rows: Columns of values.
        columns: Columns that do not come from the value.
        names: Rule that matches fields of values with columns.
    """
    record = rows.as_struct()
    paths = {spelt for path in mask.paths for spelt in names.spellings(path, record)}
    if paths:
        # The rescued text of a masked column is beside it, and fields without a column may be masked.
        paths |= {text_column(path) for path in paths} | {(EXTRA_COLUMN,)}
    masked_names = {path[0] for path in mask.paths}
    if mask.key or masked_names & columns.key_names:
        paths |= {(name,) for name in columns.key_names}
    of_headers = [each.name for each in columns.headers if each.header in mask.headers or each.name in masked_names]
    if of_headers or mask.headers:
        paths |= {(name,) for name in (*of_headers, *([columns.kafka.headers] if columns.kafka.headers else []))}
    return Hiding(tuple(sorted(paths)))


def landed_hiding(
    before: Hiding, rows: Iterable[tuple[Row, Row]], columns: KafkaColumns, *, transformed: bool
) -> Hiding:
    """Hidden parts of a table's rows.

    Args:
        rows: All rows of the table, each as decoded and as landed.
        columns: Kafka's columns of the rows.
        transformed: Whether steps are between the two.
    """
    if not before.masked or not transformed:
        return before
    kafka = {name for part, name in columns.columns if part in _COORDINATES}
    found: dict[str, bool] = {}
    for decoded, landed in rows:
        for name, value in landed.items():
            same = name in kafka or (name in decoded and same_value(decoded[name], value))
            found[name] = found.get(name, True) and same
    return Hiding(before.masked, frozenset(name for name, same in found.items() if not same))


def _hidden(value: Any, path: Path) -> Any:
    match value:
        case None:
            return None
        case list() if value and isinstance(value[0], tuple):
            # The keys of a map may be masked.
            return MARK
        case list():
            return [_hidden(each, path) for each in value]
        case Mapping():
            return {name: _inner(each, path, name) for name, each in value.items()}
        case _:
            # It may be JSON text with the field anywhere in it.
            return MARK


def _inner(value: Any, path: Path, name: str) -> Any:
    if name.casefold() != path[0].casefold():
        return value
    return MARK if len(path) == 1 else _hidden(value, path[1:])


def kind_of(value: Any) -> Any:
    """Type of a value; null stays null."""
    return None if value is None else f"({type(value).__name__})"
