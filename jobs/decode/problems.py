"""The reasons a value is refused."""

from __future__ import annotations

from dataclasses import dataclass

MALFORMED_JSON = "malformed_json"
NOT_AN_OBJECT = "not_an_object"
EMPTY_VALUE = "empty_value"
INVALID_UTF8 = "invalid_utf8"
WRONG_TYPE = "wrong_type"
MISSING_FIELD = "missing_field"
NULL_IN_REQUIRED = "null_in_required"
OUT_OF_RANGE = "out_of_range"
PRECISION_LOSS = "precision_loss"
BAD_TIMESTAMP = "bad_timestamp"
BAD_DATE = "bad_date"
BAD_BINARY = "bad_binary"
UNKNOWN_FIELD = "unknown_field"
KEY_CASE = "key_case"
TOO_DEEP = "too_deep"

_LONGEST_SHOWN = 60


class ValueProblem(Exception):
    """One value, or one record, that is not what is declared."""

    def __init__(self, error_class: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message
        self.field = field


@dataclass(frozen=True, slots=True)
class BadValue:
    """A refused value in a column: its index there, the error class, and the reason in a sentence."""

    index: int
    error_class: str
    message: str


def shown(text: str) -> str:
    """The text in quotes as a message shows it: escaped, and cut when it is long."""
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}… ({len(text)} characters)"
