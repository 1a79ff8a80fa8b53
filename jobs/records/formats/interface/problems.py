"""Problems of values: classes and messages of refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
BAD_TIME = "bad_time"
BAD_UUID = "bad_uuid"
UNKNOWN_FIELD = "unknown_field"
KEY_CASE = "key_case"
AMBIGUOUS_FIELD = "ambiguous_field"
TOO_DEEP = "too_deep"
WRONG_LENGTH = "wrong_length"
MALFORMED_AVRO = "malformed_avro"
NO_SCHEMA_ID = "no_schema_id"
UNKNOWN_SCHEMA = "unknown_schema"
BAD_SCHEMA = "bad_schema"
BAD_ENVELOPE = "bad_envelope"
MALFORMED_PROTOBUF = "malformed_protobuf"
SCHEMA_CHANGE_PROPOSED = "schema_change_proposed"
SCHEMA_CHANGE_REFUSED = "schema_change_refused"
LATE = "late"
EXPRESSION_FAILED = "expression_failed"
RULE_VIOLATED = "rule_violated"
DISCARDED = "discarded"
UNROUTED = "unrouted"
OWN_CODE_FAILED = "own_code_failed"
OWN_CODE_REFUSED = "own_code_refused"

CHANGE_PROPOSED = "needs a change of the table, which is not made yet"

_LONGEST_SHOWN = 60
_FOUND = ", found "
_KINDS = frozenset(
    {
        *("a string", "a whole number", "a number with a fraction or exponent", "a number beyond its range"),
        *("a boolean", "null", "an array", "an object", "no such key", "nothing", "more"),
    }
)
# Beginnings of sentences that quote a value only behind a colon.
_WITHOUT_VALUES = (
    *("needs one ", "needs a change of the table", "is not declared", "the column `", "the expression `"),
    *("the rule '", "the function `", "the decoder `"),
)


class ValueProblem(Exception):
    """One value, or one record, does not match its declaration."""

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
    """Return the text in quotes for a problem's message: escaped, and cut if it is long."""
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}… ({len(text)} characters)"


def without_value(message: str) -> str | None:
    """Return the part of a problem's message that contains no value; None if there is none.

    Only known words are kept: what was needed, and what kind of value was found.
    """
    needed, found, rest = message.partition(_FOUND)
    if found and needed.startswith("needs "):
        return message if rest in _KINDS else needed
    return message.partition(": ")[0] if message.startswith(_WITHOUT_VALUES) else None


def untold(message: str) -> str:
    """Return a problem's message without values."""
    return without_value(message) or "what was found is masked"


def shown_key(key: str) -> str:
    """Return a key of a record for a path: cut if it is long, but still different for every key."""
    if len(key) <= _LONGEST_SHOWN:
        return key
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{key[:_LONGEST_SHOWN]}… ({len(key)} characters, {digest})"


def ambiguous_field(column: str, fields: Iterable[str]) -> str:
    """Return the message for a record with several fields for one column."""
    return f"needs one field for the column {shown(column)}, found {' and '.join(map(shown, fields))}"


def change_refused(why: str) -> str:
    """Return the message for a record with a field that gets no column."""
    return f"needs a change of the table that is not made: {why}"
