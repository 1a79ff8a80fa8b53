"""Patterns of Java's SimpleDateFormat: read, and texts written and parsed by them, in UTC and in English.

It counts milliseconds where others have a fraction, takes numbers of any length, carries what is beyond a field's range
into the next one, and ignores what stands behind the text that it knows.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from jobs.schema.time_patterns import MONTHS, Part, TimePattern
from jobs.transform.columns import TransformProblem
from jobs.transform.time_writing import time_texts

_RUN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_KNOWN = {**dict.fromkeys("yMdHhmsS", 9), "a": 4, "X": 3, "Z": 5}
_ELSEWHERE = frozenset("GYwWDFEukKzL")
_NUMBER = re.compile(r"[ \t]*(-?[0-9]+)")
_OFFSET = re.compile(r"[ \t]*(?:(Z)|(?:GMT)?([+-])([0-9]{2}):?([0-9]{2})?)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    def counts_milliseconds(self) -> bool:
        """Whether it has an S that looks like a fraction of another length than milliseconds, and is none."""
        return any(part.letter == "S" and part.count != 3 for part in self.parts)

    def written(self, instants: pa.Array) -> pa.Array:
        """Instants (timestamps in microseconds, UTC) as texts."""
        texts = [_written(part, instants) for part in self.parts]
        found = pc.binary_join_element_wise(*texts, "", "")
        return pc.if_else(instants.is_valid(), found, pa.scalar(None, pa.string())) if instants.null_count else found

    def parsed(self, text: str) -> tuple[int, bool] | None:
        """Milliseconds since 1970 of a text, and whether it says just that; None where it is none."""
        return _parsed(self.parts, text)


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
        elif letters[0] in _ELSEWHERE:
            known = "known are y, M, d, H, h, a, m, s, S, X and Z"
            raise TransformProblem(f"'{letters}' of the pattern '{text}' is not supported; {known}", (key,))
        elif letters[0] not in _KNOWN or len(letters) > _KNOWN[letters[0]]:
            raise TransformProblem(f"'{letters}' is no part of a pattern of SimpleDateFormat", (key,))
        elif letters == "yy":
            raise TransformProblem("'yy' leaves the century to be guessed; write yyyy", (key,))
        else:
            parts.append(Part(letters[0], len(letters)))
    if not any(part.letter for part in parts):
        raise TransformProblem(f"the pattern '{text}' says nothing of a time", (key,))
    return SimpleDateFormat(text, tuple(parts))


def _written(part: Part, instants: pa.Array) -> pa.Array | pa.Scalar:
    if not part.letter:
        return pa.scalar(part.text, pa.string())
    if part.letter == "S":
        return pc.utf8_lpad(pc.millisecond(instants).cast(pa.string()), part.count, "0")
    if part.letter == "Z":
        return pa.scalar("+0000")
    empty = Part("", 0, "")
    return time_texts(instants, TimePattern("", (part, empty)), "UTC")


def _parsed(parts: Sequence[Part], text: str) -> tuple[int, bool] | None:
    fields: dict[str, int] = {}
    at, exact, offset = 0, True, 0
    for number, part in enumerate(parts):
        if not part.letter:
            if not text.startswith(part.text, at):
                return None
            at += len(part.text)
            continue
        following = parts[number + 1] if number + 1 < len(parts) else None
        found = _field(part, text, at, following)
        if found is None:
            return None
        value, end, plain = found
        # Of numbers without anything between them, a short last one says nothing certain; nor does a short year.
        fixed = part.letter == "y" or (number > 0 and part.number and parts[number - 1].number)
        plain, at = plain and not (fixed and end - at < part.count), end
        exact = exact and plain
        if part.letter in "XZ":
            offset = value
        else:
            fields[part.letter] = value
    instant, ordinary = _instant(fields)
    if instant is None:
        return None
    return instant - offset * 60_000, exact and ordinary and at == len(text)


def _field(part: Part, text: str, at: int, following: Part | None) -> tuple[int, int, bool] | None:
    """The value of a field, where it ends, and whether it is written as one would."""
    if part.letter in "XZ":
        match = _OFFSET.match(text, at)
        if match is None:
            return None
        minutes = 0 if match.group(1) else int(match.group(3)) * 60 + int(match.group(4) or 0)
        return (-minutes if match.group(2) == "-" else minutes), match.end(), True
    if part.letter == "a":
        word = text[at : at + 2].upper()
        return (int(word == "PM"), at + 2, True) if word in ("AM", "PM") else None
    if part.letter == "M" and part.count > 2:
        return _month(text, at)
    if following is not None and following.number:
        digits = text[at : at + part.count]
        return (int(digits), at + part.count, True) if digits.isascii() and digits.isdigit() else None
    match = _NUMBER.match(text, at)
    if match is None:
        return None
    digits = match.group(1)
    plain = match.group() == digits and (part.letter != "S" or len(digits) == 3)
    return int(digits), match.end(), plain


def _month(text: str, at: int) -> tuple[int, int, bool] | None:
    for month, name in enumerate(MONTHS, 1):
        for written in (name, name[:3]):
            if text[at : at + len(written)].casefold() == written.casefold():
                return month, at + len(written), True
    return None


def _instant(fields: dict[str, int]) -> tuple[int | None, bool]:
    """Milliseconds of fields, and whether each is in its range; None beyond the years 1 to 9999."""
    hour = fields.get("H", fields["h"] % 12 + 12 * fields.get("a", 0) if "h" in fields else 0)
    year, month, day = fields.get("y", 1970), fields.get("M", 1), fields.get("d", 1)
    months = year * 12 + month - 1
    finer = (fields.get("m", 0), fields.get("s", 0))
    try:
        start = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
        moment = start + timedelta(
            days=day - 1, hours=hour, minutes=finer[0], seconds=finer[1], milliseconds=fields.get("S", 0)
        )
    except (ValueError, OverflowError):
        return None, False
    found = (moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
    ordinary = found == (year, month, day, hour, *finer) and 1 <= fields.get("h", 1) <= 12
    return (moment - _EPOCH) // timedelta(milliseconds=1), ordinary
