"""Rules for validating a stream's file: problems that follow from wrong columns or steps are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from jobs.config.documents.base import Location, Problem
from jobs.config.documents.judgement import FileRules
from jobs.config.steps.steps import NAMING_STEPS, PASSING_STEPS
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX, readable_columns

_WORD = re.compile(r"[^\W\d]\w*")
_FIRST_WORD = re.compile(r"(?:\A|[,<])\s*`?([^\W\d]\w*)")


# Keys that do not influence the declared columns.
_ASIDE: tuple[Location, ...] = (
    *(("decode", "unknown_fields"), ("decode", "case_insensitive"), ("decode", "subject")),
    ("table", "kafka_columns"),
)


def _readable(data: Any, wrong: Sequence[Location]) -> Any:
    """Return the file with the valid columns of its schema text, and without wrong keys that do not concern columns."""
    for place in wrong:
        block = _written_at(data, place[:-1])
        if (
            isinstance(block, dict)
            and any(place[: len(aside)] == aside for aside in _ASIDE)
            and place not in _ASIDE[-1:]
        ):
            data = _without(data, place)
    text = _schema_text(data)
    if text is None or (columns := readable_columns(text)) is None:
        return data
    return {**data, "decode": {**data["decode"], "schema": columns.text}}


def _without(data: dict[Any, Any], place: Location) -> dict[Any, Any]:
    first, *rest = place
    if not rest:
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _without(data[first], tuple(rest))}


def _schema_text(data: Any) -> str | None:
    decode = data.get("decode") if isinstance(data, dict) else None
    schema = decode.get("schema") if isinstance(decode, dict) else None
    if isinstance(schema, list) and all(isinstance(each, str) for each in schema):
        return ", ".join(each.strip().rstrip(",") for each in schema)
    return schema if isinstance(schema, str) else None


def _independent(problems: list[Problem], data: Any) -> list[Problem]:
    """Leaves out problems of columns that wrong columns, or wrong steps, would have made.

    After a wrong step, the columns that it names are unknown; if it names no columns, all are. Later parts of the file
    that name such a column are validated once the first problem is solved.
    """
    declared = {*_doubtful_columns(problems, data)}
    steps = {
        at: _names_of_step(_written_at(data, ("transform", at)))
        for place, _ in problems
        if (at := _step_of(place)) is not None and len(place) > 1
    }
    kept: list[Problem] = []
    for place, text in problems:
        if place[:1] in _ABOUT_COLUMNS or place[:2] in _ABOUT_COLUMNS or place[:4] in _ABOUT_COLUMNS:
            at = _step_of(place)
            before = [names for step, names in steps.items() if at is None or step < at]
            doubtful = declared.union(*(names for names in before if names is not None))
            named = _names(_written_at(data, place), *(each for each in place[2:] if isinstance(each, str)))
            if None in before or not doubtful.isdisjoint(named):
                continue
        kept.append((place, text))
    return kept


_ABOUT_COLUMNS: frozenset[Location] = frozenset(
    {
        *(("transform",), ("rules",), ("event_time",), ("route",), ("contract",), ("maintenance",)),
        *(("table", "partition_by"), ("table", "sort_by"), ("table", "identifier_fields")),
        ("errors", "dead_letters", "mask", "columns"),
    }
)


def _step_of(place: Location) -> int | None:
    return place[1] if len(place) > 1 and place[0] == "transform" and isinstance(place[1], int) else None


def _names_of_step(step: Any) -> set[str] | None:
    """Return the columns that are unknown after a wrong step; None for all of them."""
    kinds = set(step) - {"when"} if isinstance(step, dict) else set[str]()
    if kinds <= PASSING_STEPS and kinds:
        return set()
    return _names(step) if kinds <= NAMING_STEPS and kinds else None


def _doubtful_columns(problems: Iterable[Problem], data: Any) -> set[str]:
    named = [place for place, _ in problems if len(place) > 2]
    names = {str(place[2]) for place in named if place[:2] == ("decode", "headers")}
    names |= {f"{KAFKA_COLUMN_PREFIX}_{place[2]}" for place in named if place[:2] == ("table", "kafka_columns")}
    text = _schema_text(data)
    if text is not None and (columns := readable_columns(text)) is not None:
        names |= {*_FIRST_WORD.findall(text)} - {each.name for each in columns.fields}
    return names


def _names(*values: Any) -> set[str]:
    """Return the words of all texts in some values. A YAML alias may refer to a value from within itself."""
    found: set[str] = set()
    pending, visited = list(values), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found.update(_WORD.findall(value))
        elif isinstance(value, (dict, list)) and id(value) not in visited:
            visited.add(id(value))
            pending += [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return found


def _written_at(data: Any, place: Location) -> Any:
    value: Any = data
    for part in place:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = cast(list[Any], value)[part]
        else:
            return None
    return value


STREAM_RULES = FileRules(_readable, _independent)
