"""Catalogue of expectations: their names and arguments as Great Expectations has them, read without importing it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("expectation_catalogue.json")
"""Written by ``python -m tests.helpers.expectation_catalogue``."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an expectation.

    Attributes:
        kind: What its values are: column, columns, text, texts, regex, regexes, number, integer, share (of 1), flag,
            comparable (a number, a date or a time), values, pairs, choice, quantiles, condition, mapping, duration.
        required: Whether it has to be there.
        choices: The words of a choice.
    """

    kind: str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectationType:
    """An expectation that a contract can have.

    Attributes:
        arguments: By name.
        one_of: At least one of these has to be there.
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
"""The expectations that are frazil's own."""
OF_NO_ROWS = frozenset({"expect_table_row_count_to_be_between", "expect_table_row_count_to_equal", VOLUME_TO_BE_USUAL})
"""The expectations about how many rows come, which are judged where none has come, too."""


@cache
def expectation_types() -> Mapping[str, ExpectationType]:
    """All expectations that a contract can have, by name."""
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
    """Expectations of Great Expectations that no contract can have, each with why."""
    return _data()["left_out"]


@cache
def _data() -> dict:
    return json.loads(FILE.read_text(encoding="utf-8"))
