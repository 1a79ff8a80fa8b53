"""Patterns of Java's SimpleDateFormat: read, and times written by them, in UTC and in English."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.schema.time_patterns import Part, TimePattern
from jobs.transform.columns import TransformProblem
from jobs.transform.smt.simple_date_texts import DAYS, parsed_text
from jobs.transform.time_writing import time_texts

_RUN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_MOST = {**dict.fromkeys("GyMLdDEuHkKhamsSzZ"), "X": 3}
_OF_WEEKS = frozenset("YwWF")
_TURN = 146_097 * 86_400_000
"""Milliseconds of 400 years, behind which the calendar repeats itself, with its days of the week."""


@dataclass(frozen=True)
class SimpleDateFormat:
    """A pattern.

    Attributes:
        text: As it was written.
        parts: In their order.
    """

    text: str
    parts: tuple[Part, ...]

    @property
    def letters(self) -> frozenset[str]:
        """Those that it has."""
        return frozenset(part.letter for part in self.parts if part.letter)

    @property
    def counts_milliseconds(self) -> bool:
        """Whether it has an S that looks like a fraction of another length than milliseconds, and is none."""
        return any(part.letter == "S" and part.count != 3 for part in self.parts)

    @property
    def unreadable(self) -> str | None:
        """Why texts are not read by it; None if they are."""
        letters = self.letters
        if any(part.letter == "y" and part.count == 2 for part in self.parts):
            return "'yy' leaves the century to be guessed, by the day on which the text is read; write yyyy"
        if letters & set("Eu") and not letters & set("dD"):
            return "the day of a week is no day without d beside it"
        if "D" in letters and letters & set("MLd"):
            return "the day is said twice, by D and by M and d"
        return None

    def written(self, ms: pa.Array) -> pa.Array:
        """Instants, in milliseconds since 1970, as texts."""
        instants, years = _calendar(ms)
        texts = [_written(part, instants, years) for part in self.parts]
        found = pc.binary_join_element_wise(*texts, "", "")
        return pc.if_else(ms.is_valid(), found, pa.scalar(None, pa.string())) if ms.null_count else found

    def miswritten(self, ms: pa.Array) -> pa.Array:
        """Which instants have milliseconds that read as another fraction, as 5 ms by S."""
        fraction = pc.millisecond(_calendar(ms)[0])
        wrong = pa.repeat(pa.scalar(False), len(ms))
        for part in self.parts:
            if part.letter == "S" and part.count != 3:
                zero = pc.equal(fraction, 0)
                right = zero if part.count > 3 else pc.or_(zero, pc.greater_equal(fraction, 100))
                wrong = pc.or_(wrong, pc.invert(right))
        return pc.fill_null(wrong, False)

    def parsed(self, text: str) -> tuple[int, bool] | None:
        """Milliseconds since 1970 of a text, and whether it says just that; None where it is none."""
        return parsed_text(self.parts, text)


def simple_date_format(text: str, key: str) -> SimpleDateFormat:
    """A pattern.

    Args:
        text: The pattern.
        key: The property that it stands in.

    Raises:
        TransformProblem: It is none, or has a letter that frazil does not take.
    """
    parts: list[Part] = []
    for run in _RUN.finditer(text):
        letters = run.group()
        if letters == "'":
            raise TransformProblem(f"the pattern '{text}' has a single quote that is never closed", (key,))
        if not run.group(2):
            quoted = run.group(1)
            parts.append(Part("", 0, letters if quoted is None else quoted.replace("''", "'") or "'"))
        elif letters[0] in _OF_WEEKS:
            said = "counts weeks, which begin on another day in each worker's language"
            raise TransformProblem(f"'{letters}' of the pattern '{text}' {said}: write the day", (key,))
        elif letters[0] not in _MOST or len(letters) > (_MOST[letters[0]] or len(letters)):
            raise TransformProblem(f"'{letters}' is no part of a pattern of SimpleDateFormat", (key,))
        else:
            parts.append(Part(letters[0], len(letters)))
    if not any(part.letter for part in parts):
        raise TransformProblem(f"the pattern '{text}' says nothing of a time", (key,))
    return SimpleDateFormat(text, tuple(parts))


def _calendar(ms: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Timestamps at the same place of the calendar, in years that Arrow counts, and their true years; 0 is 1 BC."""
    null = ms.is_null().to_numpy(zero_copy_only=False)
    turns, rest = np.divmod(pc.fill_null(ms, 0).to_numpy(), _TURN)
    instants = pa.array(rest * 1_000, mask=null).cast(pa.timestamp("us", tz="UTC"))
    return instants, pc.add(pc.year(instants), pa.array(turns * 400))


def _written(part: Part, instants: pa.Array, years: pa.Array) -> pa.Array | pa.Scalar:
    match part.letter:
        case "":
            return pa.scalar(part.text, pa.string())
        case "S":
            return _digits(pc.millisecond(instants), part.count)
        case "y":
            of_era = pc.if_else(pc.less(years, 1), pc.subtract(1, years), years)
            return _digits(_rest(of_era, 100) if part.count == 2 else of_era, part.count)
        case "D":
            return _digits(pc.day_of_year(instants), part.count)
        case "E":
            names = pa.array([name if part.count > 3 else name[:3] for name in DAYS], pa.string())
            return names.take(pc.day_of_week(instants))
        case "u":
            return _digits(pc.add(pc.day_of_week(instants), 1), part.count)
        case "k":
            hours = pc.hour(instants)
            return _digits(pc.if_else(pc.equal(hours, 0), 24, hours), part.count)
        case "K":
            return _digits(_rest(pc.hour(instants), 12), part.count)
        case "G":
            return pc.if_else(pc.less(years, 1), "BC", "AD")
        case "z":
            return pa.scalar("UTC" if part.count < 4 else "Coordinated Universal Time")
        case "Z":
            return pa.scalar("+0000")
        case "M" | "L":
            return _by_pattern(Part("M", min(part.count, 4)), instants)
        case "a":
            return _by_pattern(Part("a", 1), instants)
        case _:
            return _by_pattern(part, instants)


def _by_pattern(part: Part, instants: pa.Array) -> pa.Array:
    return time_texts(instants, TimePattern("", (part, Part("", 0, ""))), "UTC")[0]


def _rest(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _digits(numbers: pa.Array, count: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), count, "0")
