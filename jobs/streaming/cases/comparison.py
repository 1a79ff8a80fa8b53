"""Comparison of a case's expectation with its outcome. Pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar

from jobs.streaming.cases.case_file import Case, ExpectedLetter, as_decimal
from jobs.streaming.cases.case_run import CaseOutcome
from jobs.streaming.preview.record import PreviewedLetter
from jobs.streaming.preview.values import Row

ExpectedT = TypeVar("ExpectedT")
FoundT = TypeVar("FoundT")
_LONGEST = 200


def differences(case: Case, outcome: CaseOutcome) -> list[str]:
    """Differences between outcome and expectation, as sentences; empty if there are none."""
    return [*_row_differences(case, outcome), *_letter_differences(case, outcome)]


def _row_differences(case: Case, outcome: CaseOutcome) -> Iterator[str]:
    expected = case.rows_by_table
    every = None in expected
    tables = [None] if every else list(dict.fromkeys([*expected, *(table for _, table, _ in outcome.rows)]))
    for table in tables:
        rows = [(record, name, row) for record, name, row in outcome.rows if table in (None, name)]
        wanted = expected.get(table, ())
        for index, at in aligned(wanted, rows, lambda want, found: not list(_columns(want, found[2]))):
            if index is None:
                record, name, row = rows[at or 0]
                yield f"record {record} has a row in {name} that is not expected: {shown(row)}"
                continue
            where = f"row {index + 1}" if table is None else f"row {index + 1} of {table}"
            if at is None:
                yield f"{where} is expected and missing: {shown(wanted[index])}"
                continue
            record, _, row = rows[at]
            yield from (f"{where} (record {record}): {problem}" for problem in _columns(wanted[index], row))


def _columns(expected: Mapping[str, Any], row: Row) -> Iterator[str]:
    for name, value in expected.items():
        if name not in row:
            yield f"there is no column {name}; the columns are {', '.join(row)}"
        elif not fits(value, row[name]):
            yield f"{name}: expected {shown(value)}, got {shown(row[name])}"


def _letter_differences(case: Case, outcome: CaseOutcome) -> Iterator[str]:
    wanted, letters = case.dead_letters, outcome.letters
    for index, at in aligned(wanted, letters, lambda want, found: not list(_letter_problems(want, found[1]))):
        if index is None:
            record, letter = letters[at or 0]
            yield f"record {record} is a dead letter that is not expected: {_sentence(letter)}"
        elif at is None:
            given = wanted[index].model_dump(exclude_unset=True)
            yield f"dead letter {index + 1} is expected and missing: {shown(given)}"
        else:
            record, letter = letters[at]
            yield from (
                f"dead letter {index + 1} (record {record}): {problem}"
                for problem in _letter_problems(wanted[index], letter)
            )


def _letter_problems(expected: ExpectedLetter, letter: PreviewedLetter) -> Iterator[str]:
    exact = (
        ("class", expected.error_class, letter.error_class),
        ("stage", expected.stage, letter.stage),
        ("field", expected.field, letter.field),
    )
    for name, want, found in exact:
        if want is not None and want != found:
            yield f"{name}: expected {want}, got {found}"
    if expected.message is not None and expected.message not in (letter.message or ""):
        yield f"message: expected to contain {shown(expected.message)}, got {shown(letter.message)}"


def _sentence(letter: PreviewedLetter) -> str:
    field = f" at {letter.field}" if letter.field else ""
    message = f": {letter.message}" if letter.message else ""
    return f"{letter.error_class} in {letter.stage}{field}{message}"


def aligned(
    expected: Sequence[ExpectedT], found: Sequence[FoundT], same: Callable[[ExpectedT, FoundT], bool]
) -> Iterator[tuple[int | None, int | None]]:
    """Pairs of indices of two sequences, in order: as many equal pairs as possible, and the others in turn.

    Args:
        expected: One sequence.
        found: The other sequence. In a pair, None stands for a missing partner.
        same: Whether two entries are equal.
    """
    equal = [[same(want, have) for have in found] for want in expected]
    # Longest common subsequence, computed from the ends.
    length = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for i in reversed(range(len(expected))):
        for j in reversed(range(len(found))):
            length[i][j] = length[i + 1][j + 1] + 1 if equal[i][j] else max(length[i + 1][j], length[i][j + 1])
    i = j = 0
    left: list[int] = []
    right: list[int] = []
    while i < len(expected) or j < len(found):
        if i < len(expected) and j < len(found) and equal[i][j]:
            yield from _in_turn(left, right)
            left, right = [], []
            yield i, j
            i, j = i + 1, j + 1
        elif j >= len(found) or (i < len(expected) and length[i + 1][j] >= length[i][j + 1]):
            left.append(i)
            i += 1
        else:
            right.append(j)
            j += 1
    yield from _in_turn(left, right)


def _in_turn(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int | None, int | None]]:
    for at in range(max(len(left), len(right))):
        yield left[at] if at < len(left) else None, right[at] if at < len(right) else None


def fits(expected: Any, found: Any) -> bool:
    """Whether a value is the expected one; for a struct only the given fields are compared.

    Args:
        expected: Value in the case: numbers are exact, instants and bytes are texts or, for bytes, `{hex: …}`.
        found: Value from Arrow.
    """
    match expected, found:
        case (None, _) | (_, None):
            return expected is found
        case (bool(), _) | (_, bool()):
            return expected is found
        case _, (int() | float() | Decimal()):
            return _same_number(expected, found)
        case _, bytes():
            given = expected.get("hex") if isinstance(expected, Mapping) else None
            return found.hex() == given.lower() if isinstance(given, str) else found == str(expected).encode()
        case _, datetime():
            return _parsed(datetime, expected) == (found if found.tzinfo else found.replace(tzinfo=UTC))
        case _, date():
            return _parsed(date, expected) == found
        case _, time():
            return _parsed(time, expected) == found
        case Mapping(), Mapping():
            return all(name in found and fits(value, found[name]) for name, value in expected.items())
        case Mapping(), list():
            # A map is a list of pairs.
            pairs = {str(key): value for key, value in found}
            return pairs.keys() == expected.keys() and all(fits(value, pairs[key]) for key, value in expected.items())
        case list(), list():
            return len(expected) == len(found) and all(map(fits, expected, found))
        case _:
            return str(expected) == str(found)


def _same_number(expected: Any, found: float | Decimal) -> bool:
    number = as_decimal(expected)
    if number is None:
        return False
    if number.is_nan():
        return isinstance(found, float) and math.isnan(found)
    return float(number) == found if isinstance(found, float) else number == found


def _parsed(kind: Any, text: Any) -> Any:
    try:
        value = kind.fromisoformat(str(text))
    except ValueError:
        return None
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def plain(value: Any) -> Any:
    """A value as written in a case file: texts for instants, mappings for maps, `{hex: …}` for bytes."""
    match value:
        case datetime():
            text = (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()
            return f"{text}Z" if value.tzinfo else text
        case date() | time():
            return value.isoformat()
        case bytes():
            return {"hex": value.hex()}
        case Mapping():
            return {str(name): plain(inner) for name, inner in value.items()}
        case list() if value and all(isinstance(pair, tuple) for pair in value):
            return {str(key): plain(inner) for key, inner in value}
        case list():
            return [plain(inner) for inner in value]
        case None | bool() | int() | float() | Decimal() | str():
            return value
        case _:
            return str(value)


def shown(value: Any) -> str:
    """A value for a sentence, as JSON with exact numbers; long values are cut."""
    text = _json(plain(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _json(value: Any) -> str:
    match value:
        case Decimal():
            return f"{value:f}" if value.is_finite() else str(value)
        case dict():
            return "{" + ", ".join(f"{name}: {_json(inner)}" for name, inner in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)
