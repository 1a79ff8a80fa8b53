"""Seen values: bounded statistics of the values of a field of JSON records, kept while the records are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from jobs.records.formats.columns.pattern_times import exact_time_text
from jobs.records.formats.columns.text_values import exact_date, exact_timestamp
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema

Kind: TypeAlias = Literal["boolean", "number", "text", "list", "object"]
TextForm: TypeAlias = Literal["timestamptz", "timestamp", "date"]
WHOLE, NUMBER = "long as text", "double as text"

MOST_FIELDS = 2_000
"""Limit of an object's fields; further ones are only counted."""
MOST_ELEMENTS = 100
"""Limit of a list's elements that are looked at."""
MOST_EXAMPLES = 3
DEEPEST = 32
"""Limit of depth; deeper values are not looked at, and a schema is nested no deeper either."""

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?"
_FORMS: tuple[tuple[TextForm, re.Pattern[str]], ...] = (
    ("timestamptz", re.compile(rf"{_TIME}(Z|[+-]\d\d:\d\d)", re.ASCII)),
    ("timestamp", re.compile(_TIME, re.ASCII)),
    ("date", re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)),
)
_LONGEST_TIME = 35
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)", re.ASCII)
_DAYS = ("d.M.yyyy", "yyyy/M/d", "MMM d yyyy", "MMM d, yyyy", "MMMM d, yyyy", "d MMM yyyy", "d MMMM yyyy")
# A day is no timestamp, as one without a time has another meaning.
_PATTERNS: tuple[str, ...] = (
    *(f"date as '{day}'" for day in _DAYS),
    *(f"timestamp as '{day} {time}'" for day in _DAYS for time in ("H:mm", "H:mm:ss", "H:mm:ss.SSS")),
)

_DECODER = msgspec.json.Decoder(float_hook=Decimal)


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class SeenValues:
    """Statistics of the values of one field in the records that were looked at.

    Attributes:
        count: Number of values that are not null.
        nulls: Number of values that are null.
        kinds: Number of values of each kind of JSON.
        fractions: Number of numbers written with a point or an exponent, also `1.0`.
        least, most: The smallest and the largest number.
        whole_digits, fraction_digits: The most digits before and behind the point, as written.
        forms: Number of texts that look like a time, a day or a number, by the type that would take them, as schema
            text.
        earliest, latest: The first and the last of the texts with a TextForm.
        shortest, longest: Lengths of texts in characters.
        fields: Fields of objects, in the order in which they came.
        more_fields: Number of values of fields beyond `MOST_FIELDS`.
        element: Elements of lists.
        first: The first record that had the field.
        first_of: The first record with a value of each kind.
    """

    count: int = 0
    nulls: int = 0
    kinds: dict[Kind, int] = field(default_factory=dict)
    fractions: int = 0
    least: Decimal | int | None = None
    most: Decimal | int | None = None
    whole_digits: int = 0
    fraction_digits: int = 0
    forms: dict[str, int] = field(default_factory=dict)
    earliest: str | None = None
    latest: str | None = None
    shortest: int | None = None
    longest: int | None = None
    fields: dict[str, SeenValues] = field(default_factory=dict)
    more_fields: int = 0
    element: SeenValues | None = None
    first: Place | None = None
    first_of: dict[Kind, Place] = field(default_factory=dict)

    def add(self, value: Any, place: Place, depth: int = 0) -> None:
        """Add one value, as `parsed` returns it.

        Args:
            value: The field's value in a record.
            place: The record.
            depth: Number of objects and lists that contain the field.
        """
        self.first = self.first or place
        if value is None:
            self.nulls += 1
            return
        kind = _kind(value)
        self.count += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.first_of.setdefault(kind, place)
        match value:
            case bool():
                pass
            case int() | Decimal():
                self._add_number(value)
            case str():
                self._add_text(value)
            case _ if depth >= DEEPEST:
                pass
            case list():
                self.element = self.element or SeenValues()
                for each in value[:MOST_ELEMENTS]:
                    self.element.add(each, place, depth + 1)
            case _:
                self._add_fields(value, place, depth)

    def _add_number(self, value: int | Decimal) -> None:
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)
        whole, fraction = _digits(value)
        self.whole_digits = max(self.whole_digits, whole)
        self.fraction_digits = max(self.fraction_digits, fraction)
        self.fractions += isinstance(value, Decimal)

    def _add_text(self, value: str) -> None:
        length = len(value)
        self.shortest = length if self.shortest is None else min(self.shortest, length)
        self.longest = length if self.longest is None else max(self.longest, length)
        form = text_form(value)
        if form is not None:
            self.earliest = value if self.earliest is None else min(self.earliest, value)
            self.latest = value if self.latest is None else max(self.latest, value)
        if (named := form or declared_form(value)) is not None:
            self.forms[named] = self.forms.get(named, 0) + 1

    def _add_fields(self, value: dict[str, Any], place: Place, depth: int) -> None:
        for name, inner in value.items():
            known = self.fields.get(name)
            if known is None:
                if len(self.fields) >= MOST_FIELDS:
                    self.more_fields += 1
                    continue
                known = self.fields[name] = SeenValues()
            known.add(inner, place, depth + 1)

    def merge(self, other: SeenValues) -> None:
        """Add the statistics of the same field in later records."""
        self.count += other.count
        self.nulls += other.nulls
        self.fractions += other.fractions
        self.more_fields += other.more_fields
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for form, count in other.forms.items():
            self.forms[form] = self.forms.get(form, 0) + count
        self.first = self.first or other.first
        self.first_of = other.first_of | self.first_of
        self.least, self.most = _least(self.least, other.least), _most(self.most, other.most)
        self.earliest, self.latest = _least(self.earliest, other.earliest), _most(self.latest, other.latest)
        self.shortest, self.longest = _least(self.shortest, other.shortest), _most(self.longest, other.longest)
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.fraction_digits = max(self.fraction_digits, other.fraction_digits)
        for name, theirs in other.fields.items():
            if name not in self.fields and len(self.fields) >= MOST_FIELDS:
                self.more_fields += theirs.count + theirs.nulls
                continue
            self.fields.setdefault(name, SeenValues()).merge(theirs)
        if other.element is not None:
            self.element = self.element or SeenValues()
            self.element.merge(other.element)


def parsed(record: bytes) -> dict[str, Any] | None:
    """Return a record's JSON object, its numbers exact; None if it is no object."""
    try:
        value = _DECODER.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_form(text: str) -> TextForm | None:
    """Return the form of a time or a day that a text has, if it is a valid one."""
    if len(text) > _LONGEST_TIME:
        return None
    form: TextForm | None = next((form for form, pattern in _FORMS if pattern.fullmatch(text)), None)
    try:
        match form:
            case None:
                return None
            case "date":
                exact_date(text)
            case _:
                exact_timestamp(text, zoned=form == "timestamptz")
    except ValueProblem:
        return None
    return form


def declared_form(text: str) -> str | None:
    """Return the declared type that takes a text of a number, or of a time in another form than `text_form` knows."""
    if len(text) > _LONGEST_TIME:
        return None
    if _NUMBER.fullmatch(text):
        return WHOLE if _WHOLE.fullmatch(text) else NUMBER
    if not _YEAR.search(text):
        return None
    for form, declared in _declared_patterns():
        with suppress(ValueProblem):
            exact_time_text(text, declared)
            return form
    return None


@lru_cache(maxsize=1)
def _declared_patterns() -> list[tuple[str, Primitive]]:
    types = [parse_schema(f"c {form}").fields[0].type for form in _PATTERNS]
    return [(form, kind) for form, kind in zip(_PATTERNS, types, strict=True) if isinstance(kind, Primitive)]


def paths(seen: SeenValues, path: str = "$") -> Iterator[tuple[str, SeenValues]]:
    """Yield each field below with its JSON path, such as `$.items[].sku`; the record itself is not among them."""
    for name, inner in seen.fields.items():
        yield f"{path}.{name}", inner
        yield from paths(inner, f"{path}.{name}")
    if seen.element is not None:
        yield f"{path}[]", seen.element
        yield from paths(seen.element, f"{path}[]")


def example_values(value: Any, found: dict[str, list[Any]], path: str = "$") -> None:
    """Add the values of a record to examples by path, up to `MOST_EXAMPLES` different ones of each."""
    match value:
        case dict():
            for name, inner in value.items():
                example_values(inner, found, f"{path}.{name}")
        case list():
            for each in value[:MOST_ELEMENTS]:
                example_values(each, found, f"{path}[]")
        case None:
            return
        case _:
            known = found.setdefault(path, [])
            if len(known) < MOST_EXAMPLES and value not in known:
                known.append(value)


def _kind(value: Any) -> Kind:
    match value:
        case bool():
            return "boolean"
        case int() | Decimal():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
        case _:
            return "object"


def _digits(value: int | Decimal) -> tuple[int, int]:
    """Return the number of digits before and behind the point, as written; zero has none before it."""
    _, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return 0, 0
    whole = len(digits) + exponent if any(digits) else 0
    return max(whole, 0), max(-exponent, 0)


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


def _most(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else max(one, other)
