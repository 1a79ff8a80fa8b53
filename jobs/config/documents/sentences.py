"""Sentences of frazil for pydantic's validation errors, one for each error type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

Details = Mapping[str, Any]


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word nearest to a wrong one for a validation error, if any is near."""
    by_case = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_case, n=1, cutoff=0.6)
    return by_case[near[0]] if near else None


_TEXT = "must be text"
_WHOLE = "must be a whole number"
_ANY_NUMBER = "must be a number"
_FLAG = "must be true or false"
_MAPPING = "must be a mapping of keys to values"
_LIST = "must be a list"
_TIME = "must be a time such as 2026-01-31T08:00:00Z"


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count:,} entries"


def _characters(count: int) -> str:
    return "one character" if count == 1 else f"{count:,} characters"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


# Error types: pydantic's "Validation Errors". Each model with a union has its own sentence for `union_tag_…`.
SENTENCES: Mapping[str, str | Callable[[Details], str]] = {
    "missing": "is required and missing",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "string_unicode": "must be UTF-8 text",
    "string_too_short": lambda ctx: (
        "must not be empty" if ctx["min_length"] == 1 else f"must have at least {_characters(ctx['min_length'])}"
    ),
    "string_too_long": lambda ctx: f"must have at most {_characters(ctx['max_length'])}",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": f"{_WHOLE} of 64 bits",
    "float_type": _ANY_NUMBER,
    "float_parsing": _ANY_NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "greater_than": lambda ctx: f"must be greater than {_number(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"must be greater than or equal to {_number(ctx['ge'])}",
    "less_than": lambda ctx: f"must be less than {_number(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"must be less than or equal to {_number(ctx['le'])}",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "invalid_key": "must have keys that are text; put the key in quotes",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "iteration_error": _LIST,
    "too_short": lambda ctx: f"must have at least {_entries(ctx['min_length'])}",
    "too_long": lambda ctx: f"must have at most {_entries(ctx['max_length'])}",
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "datetime_object_invalid": _TIME,
    **dict.fromkeys(
        ("date_type", "date_parsing", "date_from_datetime_parsing", "date_from_datetime_inexact"),
        "must be a day such as 2026-01-31",
    ),
    "timezone_aware": "must name its zone, such as 2026-01-31T08:00:00Z",
    "timezone_offset": "must name its zone, such as 2026-01-31T08:00:00Z",
    "time_delta_type": "must be a whole number with a unit, such as 60s, 5m, 2h or 1d",
    "time_delta_parsing": "must be a whole number with a unit, such as 60s, 5m, 2h or 1d",
    "is_instance_of": "must be a value of another form",
    "recursion_loop": "must not contain itself",
}


def sentence_of(entry: Any, *, show_values: bool) -> str:
    """Return the sentence about one error of pydantic: what is allowed, and what was written.

    Args:
        entry: Entry of `ValidationError.errors`.
        show_values: Whether the sentence may quote values.
    """
    kind, value = entry["type"], entry["input"]
    if kind in ("value_error", "assertion_error"):
        return str(entry["ctx"]["error"])
    if kind.startswith("frazil_"):
        return entry["msg"]
    if kind == "literal_error":
        return _literal_sentence(entry, show_values=show_values)
    known = SENTENCES.get(kind, "has a value that is not possible here")
    sentence = known if isinstance(known, str) else known(entry["ctx"])
    if kind == "missing":
        return sentence
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f"{sentence}{_found(value, show_values)}; put it in quotes"
    return sentence + _found(value, show_values or value is None or isinstance(value, (list, dict)))


def _literal_sentence(entry: Any, *, show_values: bool) -> str:
    value, allowed = entry["input"], entry["ctx"]["expected"]
    words = [word.strip("' ") for word in allowed.replace(" or ", ", ").split(",")]
    near = suggestion(value, words) if isinstance(value, str) else None
    return f"must be {allowed}{_found(value, show_values)}" + (f"; did you mean '{near}'?" if near else "")


def _found(value: object, show: bool) -> str:
    if not show:
        return ""
    if value is None:
        return "; found nothing"
    if isinstance(value, bool):
        return f"; found {str(value).lower()}"
    if isinstance(value, str):
        return f"; found '{value if len(value) <= 60 else value[:57] + '…'}'"
    if isinstance(value, (int, float)):
        return f"; found {value}"
    return "; found a list" if isinstance(value, (list, tuple)) else "; found a mapping"
