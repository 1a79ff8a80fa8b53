"""Catalogue of expectations with Great Expectations' names and arguments, and the check of arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jobs.config.contract.row_condition import WrongCondition, row_condition
from jobs.config.documents.base import Location, Problem
from jobs.config.documents.units import parse_duration
from jobs.config.documents.validation import suggestion
from jobs.config.values.mask import path_parts

FILE = Path(__file__).with_name("expectation_catalogue.json")
"""Written by ``python -m tests.helpers.expectation_catalogue``."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an expectation.

    Attributes:
        kind: Kind of its values: column, columns, text, texts, regex, regexes, number, integer, share (of 1), flag,
            comparable (a number, a date or a time), values, pairs, choice, quantiles, condition, mapping, duration.
        required: Whether the argument is required.
        choices: Words of a choice.
    """

    kind: str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectationType:
    """An expectation that a contract can have.

    Attributes:
        arguments: Arguments by name.
        one_of: Arguments of which at least one is required.
    """

    arguments: Mapping[str, Argument]
    one_of: tuple[str, ...] = ()


KEYS_TO_BE_UNIQUE = "frazil_keys_to_be_unique"
VOLUME_TO_BE_USUAL = "frazil_volume_per_hour_to_be_usual"
OWN = {
    KEYS_TO_BE_UNIQUE: ExpectationType({"columns": Argument("columns", required=True)}),
    VOLUME_TO_BE_USUAL: ExpectationType(
        {
            "column": Argument("column"),
            "min_ratio": Argument("number"),
            "max_ratio": Argument("number"),
            "past": Argument("duration"),
            "grace": Argument("duration"),
        },
        one_of=("min_ratio", "max_ratio"),
    ),
}
"""Expectations of frazil itself."""
OF_NO_ROWS = frozenset({"expect_table_row_count_to_be_between", "expect_table_row_count_to_equal", VOLUME_TO_BE_USUAL})
"""Expectations about the number of rows, which are evaluated even if no row has come."""


@cache
def expectation_types() -> Mapping[str, ExpectationType]:
    """Return all expectations that a contract can have, by name."""
    found = {
        name: ExpectationType(
            {
                each: Argument(one["kind"], one.get("required", False), tuple(one.get("choices", ())))
                for each, one in entry["arguments"].items()
            },
            tuple(entry.get("one_of", ())),
        )
        for name, entry in _data()["expectations"].items()
    }
    return {**found, **OWN}


@cache
def left_out() -> Mapping[str, str]:
    """Return expectations of Great Expectations that no contract can have, each with the reason."""
    return _data()["left_out"]


@cache
def _data() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))


BESIDE = ("severity", "name", "meta")
"""Keys of an expectation beside its arguments."""
Problems = list[Problem]
# Regular expressions that Python and Java read differently, or that one of them does not support.
_ONE_ENGINE = (
    (re.compile(r"(?<!\\)(?:\\\\)*\(\?P"), "names a group in Python's way; write (?:…)"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[ZzAGpPQEhHRX]"), "has \\Z, \\z, \\A or another class that Python and Java read "
     "differently; write ^, $ and [...]"),
    (re.compile(r"\(\?\("), "has a condition, which Java does not know"),
    (re.compile(r"[*+?}]\+"), "has a possessive repetition; write it without the second +"),
    (re.compile(r"(?<!\\)\[[^\]]*(?<!\\)(?:&&|(?<!^)\[)"), "has [ or && within [...], a set in Java; write \\["),
)  # fmt: skip
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")


def argument_problems(kind: str, arguments: object) -> Problems:
    """Return what is wrong with the arguments of an expectation, each with its place below them."""
    entry = expectation_types()[kind]
    if not isinstance(arguments, Mapping):
        return [((), "must be a mapping of arguments to values")]
    problems: Problems = []
    for name, value in arguments.items():
        argument = entry.arguments.get(name)
        if argument is None:
            problems.append(((str(name),), _unknown(str(name), entry)))
        elif _is_parameter(value):
            problems.append(((name,), "is a suite parameter; a contract has values"))
        else:
            problems += [((name, *place), said) for place, said in _CHECKS[argument.kind](value, argument)]
    misspelt = {suggestion(str(name), entry.arguments) for name in arguments if name not in entry.arguments}
    for name, argument in entry.arguments.items():
        if argument.required and name not in arguments and name not in misspelt:
            problems.append(((), f"lacks the argument {name}"))
    if entry.one_of and not any(arguments.get(name) is not None for name in entry.one_of) and not problems:
        problems.append(((), f"could never fail: it needs {' or '.join(entry.one_of)}"))
    return problems or list(_bounds(arguments)) or list(_together(kind, arguments))


def _unknown(name: str, entry: ExpectationType) -> str:
    if name in BESIDE:
        return "belongs beside the expectation, and not among its arguments: one level less deep"
    near = suggestion(name, entry.arguments)
    return "unknown argument; " + (f"did you mean '{near}'?" if near else f"known here: {', '.join(entry.arguments)}")


def _is_parameter(value: object) -> bool:
    return isinstance(value, Mapping) and any(str(key).startswith("$PARAMETER") for key in value)


def comparable(value: object) -> float | int | datetime | None:
    """Return a bound as a number, or as a time if it is a date or time in ISO format; None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (str, date)):
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _bounds(arguments: Mapping[str, Any]) -> Iterator[Problem]:
    for least, most in (("min_value", "max_value"), ("min_ratio", "max_ratio")):
        low, high = comparable(arguments.get(least)), comparable(arguments.get(most))
        if low is None or high is None:
            continue
        if isinstance(low, datetime) is not isinstance(high, datetime):
            yield (most,), f"is no value to compare {least} with: one is a number, the other a time"
        elif low > high:  # type: ignore[operator]
            yield (least,), f"is more than {most}, so it could never pass"
        elif low == high and (arguments.get("strict_min") or arguments.get("strict_max")):
            yield (least,), f"is {most}, and strict, so it could never pass"


def _together(kind: str, arguments: Mapping[str, Any]) -> Iterator[Problem]:
    for name, least in (("column_list", 2), ("columns", 1)):
        columns = arguments.get(name)
        if isinstance(columns, list) and kind != "expect_table_columns_to_match_ordered_list":
            if len(columns) < least:
                yield (name,), f"needs at least {least} columns"
            elif twice := [each for index, each in enumerate(columns) if each in columns[:index]]:
                yield (name,), f"has '{twice[0]}' twice"
    partition = arguments.get("partition_object")
    if isinstance(partition, Mapping) and set(partition) != {"values", "weights"}:
        said = "must be {values: [a, b], weights: [0.5, 0.5]}; bins of numbers are not the same in pandas and Spark"
        yield ("partition_object",), said
    if (first := arguments.get("column_A")) is not None and first == arguments.get("column_B"):
        yield ("column_B",), "is column_A"


def _column(value: object, _: Argument) -> Problems:
    if not isinstance(value, str):
        return [((), "must be the name of a column")]
    try:
        path_parts(value)
    except ValueError as error:
        return [((), str(error))]
    return []


def _list_of(check: Callable[[object, Argument], Problems], what: str) -> Callable[[object, Argument], Problems]:
    def each(value: object, argument: Argument) -> Problems:
        if not isinstance(value, list) or not value:
            return [((), f"must be a list of {what}")]
        return [
            ((index, *place), said)
            for index, item in enumerate(value)
            for place, said in check(item, argument)
        ]  # fmt: skip

    return each


def _of_type(said: str, *kinds: type) -> Callable[[object, Argument], Problems]:
    def check(value: object, _: Argument) -> Problems:
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return [] if right and value != "" else [((), said)]

    return check


_text = _of_type("must be text", str)
_value = _of_type("must be text, a number, or true or false", str, int, float, bool)


def _share(value: object, _: Argument) -> Problems:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
        return []
    return [((), "must be more than 0 and at most 1; with 0 it could never fail")]


def _comparable(value: object, _: Argument) -> Problems:
    return (
        []
        if comparable(value) is not None
        else [((), "must be a number, a date or a time such as 2026-01-31T00:00:00Z")]
    )


def _regex(value: object, _: Argument) -> Problems:
    if not isinstance(value, str) or not value:
        return [((), "must be a regular expression")]
    try:
        re.compile(value)
    except re.error as error:
        return [((), f"is no regular expression: {error}")]
    flags = _FLAGS.match(value)
    if flags and not set(flags[1]) <= set("ism"):
        return [((), "has a flag that Python and Java read differently; i, s and m are the same")]
    return [((), said) for found, said in _ONE_ENGINE if found.search(value)][:1]


def _choice(value: object, argument: Argument) -> Problems:
    if value in argument.choices:
        return []
    near = suggestion(value, argument.choices) if isinstance(value, str) else None
    return [((), f"must be one of {', '.join(argument.choices)}" + (f"; did you mean '{near}'?" if near else ""))]


def _pair(value: object, argument: Argument) -> Problems:
    if not isinstance(value, list) or len(value) != 2:
        return [((), "must be two values")]
    return [((place,), said) for place, each in enumerate(value) for _, said in _value(each, argument)]


def _quantiles(value: object, _: Argument) -> Problems:
    if not isinstance(value, Mapping) or set(value) != {"quantiles", "value_ranges"}:
        return [((), "must be {quantiles: [0.5], value_ranges: [[least, most]]}")]
    shares, ranges = value["quantiles"], value["value_ranges"]
    if not isinstance(shares, list) or not isinstance(ranges, list) or len(shares) != len(ranges) or not shares:
        return [(("value_ranges",), "must have as many ranges as there are quantiles")]
    problems: Problems = [
        (("quantiles", index), "must be a number from 0 to 1")
        for index, each in enumerate(shares)
        if isinstance(each, bool) or not isinstance(each, (int, float)) or not 0 <= each <= 1
    ]
    for index, each in enumerate(ranges):
        place: Location = ("value_ranges", index)
        if not isinstance(each, list) or len(each) != 2 or each == [None, None]:
            problems.append((place, "must be [least, most], one of which may be null"))
        elif wrong := [end for end in each if end is not None and comparable(end) is None]:
            problems.append((place, f"'{wrong[0]}' is no number, date or time"))
        else:
            problems += [
                (place, "begins after its end")
                for _ in _bounds(dict(zip(("min_value", "max_value"), each, strict=True)))
            ]
    return problems


def _condition(value: object, _: Argument) -> Problems:
    try:
        row_condition(value)
    except WrongCondition as wrong:
        return [(wrong.place, wrong.why)]
    return []


def _duration(value: object, _: Argument) -> Problems:
    try:
        parse_duration(value)
    except ValueError as error:
        return [((), str(error))]
    return []


_CHECKS: Mapping[str, Callable[[object, Argument], Problems]] = {
    "column": _column,
    "columns": _list_of(_column, "columns"),
    "text": _text,
    "texts": _list_of(_text, "texts"),
    "regex": _regex,
    "regexes": _list_of(_regex, "regular expressions"),
    "number": _of_type("must be a number", int, float),
    "integer": _of_type("must be a whole number", int),
    "flag": _of_type("must be true or false", bool),
    "share": _share,
    "comparable": _comparable,
    "values": _list_of(_value, "values"),
    "pairs": _list_of(_pair, "pairs of values"),
    "choice": _choice,
    "quantiles": _quantiles,
    "condition": _condition,
    "duration": _duration,
    "mapping": _of_type("must be a mapping", Mapping),
}
