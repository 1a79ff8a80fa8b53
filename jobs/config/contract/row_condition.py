"""Row condition of an expectation, in Great Expectations' forms, which selects the rows to check."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.config.documents.base import Location

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "IN", "NOT_IN")
MOST_CONDITIONS = 100
_TEXT = re.compile(
    r"""col\(\s*(?P<q>["'])(?P<column>.+?)(?P=q)\s*\)\s*
    (?:(?P<notnull>\.notnull\(\))
      |(?P<op>==|!=|<=|>=|<|>)\s*(?:(?P<number>[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
        |(?:date\(\s*)?(?P<v>["'])(?P<text>.*?)(?P=v)\s*\)?))""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a value; rows without a value are not met, as in SQL.

    Attributes:
        column: Path of the column.
        operator: One of `OPERATORS`.
        value: A text, a number or a flag; a tuple of them for IN and NOT_IN.
    """

    column: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Nullity:
    """A condition that a column is null, or is not null."""

    column: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class Combination:
    """Several conditions of which all, or one, have to be met.

    Attributes:
        word: `and` or `or`.
    """

    word: str
    parts: tuple[Condition, ...]


Condition = Comparison | Nullity | Combination


class WrongCondition(ValueError):
    """A row condition is invalid; it has the place below the condition, and the reason."""

    def __init__(self, place: Location, why: str) -> None:
        super().__init__(why)
        self.place: Location = place
        self.why: str = why


def row_condition(value: object) -> Condition:
    """Read a row condition.

    Args:
        value: Text such as ``col("status") == "PAID"`` or ``col("id").notnull()``; or the mapping that Great
            Expectations writes: {type: comparison, column: {name: …}, operator: "==", parameter: …}, {type: nullity,
            column: {name: …}, is_null: …}, {type: and | or, conditions: [...]}.

    Raises:
        WrongCondition: The value has none of these forms.
    """
    found = _read(value, ())
    if sum(1 for _ in _leaves(found)) > MOST_CONDITIONS:
        raise WrongCondition((), f"has more than {MOST_CONDITIONS} conditions")
    return found


def condition_columns(condition: Condition) -> tuple[str, ...]:
    """Return the columns of a condition, each once."""
    return tuple(dict.fromkeys(leaf.column for leaf in _leaves(condition)))


def _leaves(condition: Condition) -> Iterator[Comparison | Nullity]:
    if isinstance(condition, Combination):
        for part in condition.parts:
            yield from _leaves(part)
    else:
        yield condition


def _read(value: object, place: Location) -> Condition:
    if isinstance(value, str):
        return _read_text(value, place)
    if not isinstance(value, Mapping):
        raise WrongCondition(place, 'must be a condition such as col("status") == "PAID"')
    kind = value.get("type")
    if kind in ("and", "or"):
        _closed(value, ("type", "conditions"), place)
        parts = value.get("conditions")
        if not isinstance(parts, list) or not parts:
            raise WrongCondition((*place, "conditions"), "must be a list of conditions")
        read = [_read(part, (*place, "conditions", index)) for index, part in enumerate(parts)]
        return Combination(kind, tuple(read))
    if kind == "nullity":
        _closed(value, ("type", "column", "is_null"), place)
        if not isinstance(value.get("is_null"), bool):
            raise WrongCondition((*place, "is_null"), "must be true or false")
        return Nullity(_column(value, place), value["is_null"])
    if kind == "comparison":
        _closed(value, ("type", "column", "operator", "parameter"), place)
        return _comparison(_column(value, place), value.get("operator"), value.get("parameter"), place)
    if kind == "pass_through":
        raise WrongCondition(place, "is one of pandas or of Spark alone; write it as comparisons")
    raise WrongCondition((*place, "type"), "must be comparison, nullity, and, or")


def _closed(value: Mapping[Any, Any], known: tuple[str, ...], place: Location) -> None:
    for key in value:
        if key not in known:
            raise WrongCondition((*place, str(key)), f"unknown key; known here: {', '.join(known)}")


def _column(value: Mapping[Any, Any], place: Location) -> str:
    column = value.get("column")
    name = column.get("name") if isinstance(column, Mapping) else column
    if not isinstance(name, str) or not name:
        raise WrongCondition((*place, "column"), "must be {name: …}, the name of a column")
    return name


def _comparison(column: str, operator: object, value: object, place: Location) -> Comparison:
    if operator not in OPERATORS:
        raise WrongCondition((*place, "operator"), f"must be one of {', '.join(OPERATORS)}")
    several = operator in ("IN", "NOT_IN")
    values = value if several else [value]
    if not isinstance(values, list) or not values:
        raise WrongCondition((*place, "parameter"), "must be a list of values")
    if any(not isinstance(each, (str, int, float)) for each in values):
        said = "is for values; without one it is {type: nullity}" if None in values else "must be text or a number"
        raise WrongCondition((*place, "parameter"), said)
    return Comparison(column, str(operator), tuple(values) if several else value)


def _read_text(text: str, place: Location) -> Condition:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise WrongCondition(
            place,
            'must be such as col("status") == "PAID" or col("id").notnull(); several are {type: and, conditions: […]}',
        )
    if match["notnull"]:
        return Nullity(match["column"], is_null=False)
    number = match["number"]
    value = match["text"] if number is None else int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)
    return _comparison(match["column"], match["op"], value, place)
