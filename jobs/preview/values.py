"""Values of previewed rows: compared, and as JSON has them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
"""Values of Python by column, as Arrow gives them."""

LONGEST_TEXT = 1_024
"""Characters of one value that are shown."""


def same_value(first: Any, second: Any) -> bool:
    """Whether two values are the same; NaN is NaN, and true is not 1."""
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
    """A value as JSON has it: numbers that JSON does not hold exactly as text, bytes in Base64; long texts are cut."""
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
