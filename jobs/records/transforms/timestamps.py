"""Times from texts and numbers, and texts and numbers from times: by pattern and zone, or in units since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.time_functions import local_times
from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.columns.text_values import beyond_years
from jobs.records.formats.interface.problems import OUT_OF_RANGE, PRECISION_LOSS, BadValue
from jobs.records.schema.declared import Primitive
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.time_patterns import (
    MONTHS,
    TIME_TYPES,
    Part,
    TimePattern,
    TimeTexts,
    known_zone,
    parse_pattern,
    zone_problem,
)
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.masks import nulled, rows_where
from jobs.records.transforms.nested import changed_at, retyped_at
from jobs.records.transforms.path import field_at, selected
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

Unit = Literal["s", "ms", "us", "ns"]

_KINDS: dict[str, ice.IcebergType] = {
    "date": ice.DateType(),
    "timestamp": ice.TimestampType(),
    "timestamptz": ice.TimestamptzType(),
    "time": ice.TimeType(),
}
ISO = "iso"


@dataclass(frozen=True, slots=True)
class ParseTimestamp(Transform):
    """Convert texts in patterns, or numbers since 1970, to times, exactly; rows with other values fail.

    Attributes:
        columns: Paths, with wildcards.
        formats: Patterns in the letters of Java's DateTimeFormatter, or ``iso``, tried in this order.
        unit: Unit of numbers since 1970, in place of formats.
        zone: Zone of texts that do not contain theirs.
        into: date, timestamp, timestamptz or time.
    """

    name: ClassVar[str] = "parse_timestamp"
    columns: tuple[str, ...]
    formats: tuple[str, ...] = ()
    unit: Unit | None = None
    zone: str | None = None
    into: str = "timestamptz"

    def output(self, columns: Columns) -> Columns:
        self._declared  # noqa: B018 - refuses patterns and zones that are none
        paths = selected(columns, self.columns)
        for path in paths:
            kind = field_at(columns, path).field_type
            fits = isinstance(kind, (ice.LongType, ice.IntegerType) if self.unit else ice.StringType)
            if not fits:
                wanted = "a whole number of a unit since 1970" if self.unit else "text in a format"
                raise TransformProblem(
                    f"the column '{'.'.join(path)}' is {schema_text(kind)}, and {wanted} is read", ("columns",)
                )
        return retyped_at(columns, paths, lambda _: _KINDS[self.into])

    def apply(self, rows: Rows) -> Applied:
        declared = self._declared

        def change(array: pa.Array, _: ice.NestedField) -> tuple[pa.Array, list[BadValue]]:
            return convert_leaf(declared, array.cast(pa.int64()) if self.unit else array, required=False)

        into = rows.columns.behind(self)
        arrays, failures = changed_at(rows, selected(rows.columns, self.columns), change, into)
        return settled(rows.with_batch(into, arrays), failures)

    @property
    def _declared(self) -> Primitive:
        if self.into not in _KINDS:
            raise TransformProblem(f"must be {', '.join(TIME_TYPES)}", ("into",))
        if self.unit is not None:
            if self.formats or self.zone:
                raise TransformProblem("goes without format and zone: a number since 1970 has neither", ("unit",))
            if self.into not in ("timestamp", "timestamptz"):
                raise TransformProblem(f"a number since 1970 is a timestamp or timestamptz, no {self.into}", ("into",))
            return Primitive(self.into, encoding=f"epoch_{self.unit}")
        texts = _texts(self.formats, self.zone, self.into)
        return Primitive(self.into, encoding="pattern", texts=texts)


@dataclass(frozen=True, slots=True)
class FormatTimestamp(Transform):
    """Convert times to texts in a pattern, or to numbers since 1970; a row fails if its number is not whole.

    Attributes:
        columns: Paths, with wildcards.
        format: A pattern in the letters of Java's DateTimeFormatter; finer parts of the time are left out.
        unit: Unit of numbers since 1970, in place of a format.
        zone: Zone in which a timestamptz is written; UTC without one.
    """

    name: ClassVar[str] = "format_timestamp"
    columns: tuple[str, ...]
    format: str | None = None
    unit: Unit | None = None
    zone: str | None = None

    def output(self, columns: Columns) -> Columns:
        if (self.format is None) == (self.unit is None):
            raise TransformProblem("say format or unit, one of them", ("format",))
        if self.zone is not None and known_zone(self.zone) is None:
            raise TransformProblem(
                f"'{self.zone}' is not a time zone; zones are named as in Asia/Tokyo or UTC", ("zone",)
            )
        paths = selected(columns, self.columns)
        for path in paths:
            kind = field_at(columns, path).field_type
            shown = f"the column '{'.'.join(path)}' is {schema_text(kind)}"
            if not isinstance(kind, tuple(map(type, _KINDS.values()))):
                raise TransformProblem(f"{shown}, and a date, time or timestamp is written", ("columns",))
            if self.unit and not isinstance(kind, (ice.TimestampType, ice.TimestamptzType)):
                raise TransformProblem(f"{shown}, which is no number since 1970", ("unit",))
            if self.zone and not isinstance(kind, ice.TimestamptzType):
                raise TransformProblem(f"{shown}, which has no zone", ("zone",))
            self._pattern(kind)
        return retyped_at(columns, paths, lambda _: ice.LongType() if self.unit else ice.StringType())

    def apply(self, rows: Rows) -> Applied:

        def change(array: pa.Array, field: ice.NestedField) -> tuple[pa.Array, list[BadValue]]:
            if self.unit:
                return epoch_numbers(array, self.unit)
            pattern = self._pattern(field.field_type)
            return time_texts(array, pattern, self.zone or "UTC")

        into = rows.columns.behind(self)
        arrays, failures = changed_at(rows, selected(rows.columns, self.columns), change, into)
        return settled(rows.with_batch(into, arrays), failures)

    def _pattern(self, kind: ice.IcebergType) -> TimePattern:
        try:
            return parse_pattern(self.format or "yyyy-MM-dd", schema_text(kind) if self.format else "date")
        except ValueError as problem:
            raise TransformProblem(str(problem), ("format",)) from None


def instants_of(values: pa.Array, path: str, unit: Unit = "ms") -> tuple[pa.Array, list[RowFailure]]:
    """Return times of a row as instants, and the rows with one beyond the years 0001 to 9999.

    Args:
        values: Timestamps, or whole numbers of the unit since 1970.
        path: Their JSON path.
    """
    if not pa.types.is_integer(values.type):
        return values.cast(pa.timestamp("us", tz="UTC")), []
    declared = Primitive("timestamptz", encoding=f"epoch_{unit}")
    found, bad = convert_leaf(declared, values.cast(pa.int64()), required=False)
    return found, [RowFailure(each.index, each.error_class, each.message, path) for each in bad]


def _texts(formats: Sequence[str], zone: str | None, kind: str) -> TimeTexts:
    if not formats:
        raise TransformProblem("say how the texts are written: format, or unit of numbers", ("format",))
    forms: list[TimePattern | None] = []
    for each in formats:
        try:
            forms.append(None if each == ISO else parse_pattern(each, kind))
        except ValueError as problem:
            raise TransformProblem(str(problem), ("format",)) from None
    texts = TimeTexts(tuple(forms), zone)
    if problem := zone_problem(texts, kind):
        raise TransformProblem(problem, ("zone",) if zone else ("format",))
    return texts


_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MOST = (2**63 - 1) // 1_000


def epoch_numbers(array: pa.Array, unit: str) -> tuple[pa.Array, list[BadValue]]:
    """Return timestamps as whole numbers of a unit since 1970, and those that are not whole.

    Args:
        array: Timestamps in microseconds.
        unit: s, ms, us or ns.
    """
    micros = array.cast(pa.int64())
    if unit == "ns":
        bad = rows_where(pc.greater(pc.abs(micros), _MOST))
        kept = nulled(micros, bad)
        said = "needs nanoseconds in 64 bits, found a time beyond them"
        return pc.multiply_checked(kept, 1_000), [BadValue(each, OUT_OF_RANGE, said) for each in bad]
    per = _MICROS[unit]
    whole = pc.divide(micros, per)
    bad = rows_where(pc.not_equal(pc.multiply(whole, per), micros))
    said = f"needs a whole number of {unit}, found a time with a finer part"
    return nulled(whole, bad), [BadValue(each, PRECISION_LOSS, said) for each in bad]


def time_texts(array: pa.Array, pattern: TimePattern, zone: str) -> tuple[pa.Array, list[BadValue]]:
    """Return times as texts in a pattern, without finer parts than it has, and those whose year it cannot write.

    Args:
        array: Dates, times, or timestamps in microseconds.
        pattern: Pattern for their type.
        zone: Zone in which times with a zone are written.
    """
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    local = local_times(array, zone) if zoned else array
    texts = [_part_text(part, local, array, zone) for part in pattern.parts]
    bad = [] if pa.types.is_time(array.type) else rows_where(beyond_years(local))
    said = f"needs a time in the years 0001 to 9999 in {zone}, found another"
    return pc.binary_join_element_wise(*texts, ""), [BadValue(each, OUT_OF_RANGE, said) for each in bad]


def _part_text(part: Part, local: pa.Array, instants: pa.Array, zone: str) -> pa.Array | pa.Scalar:
    match part.letter:
        case "":
            return pa.scalar(part.text, pa.string())
        case "y":
            return _digits(pc.year(local), part.count)
        case "M" if part.count > 2:
            names = pa.array([name if part.count == 4 else name[:3] for name in MONTHS], pa.string())
            return names.take(pc.subtract(pc.month(local), 1))
        case "M":
            return _digits(pc.month(local), part.count)
        case "d":
            return _digits(pc.day(local), part.count)
        case "H":
            return _digits(_hour(local), part.count)
        case "h":
            hour = pc.subtract(_hour(local), pc.multiply(pc.divide(_hour(local), 12), 12))
            return _digits(pc.if_else(pc.equal(hour, 0), 12, hour), part.count)
        case "a":
            return pc.if_else(pc.less(_hour(local), 12), "AM", "PM")
        case "m":
            return _digits(pc.minute(local), part.count)
        case "s":
            return _digits(pc.second(local), part.count)
        case "S":
            micros = pc.add(pc.multiply(pc.millisecond(local), 1_000), pc.microsecond(local))
            six = _digits(micros, 6)
            return pc.utf8_slice_codeunits(pc.utf8_rpad(six, part.count, "0"), 0, part.count)
        case "V":
            return pc.if_else(local.is_valid(), pa.scalar(zone), pa.scalar(None, pa.string()))
        case _:
            return _offsets(part, local, instants)


def _hour(local: pa.Array) -> pa.Array:
    return pc.hour(local)


def _digits(numbers: pa.Array, count: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), count, "0")


def _offsets(part: Part, local: pa.Array, instants: pa.Array) -> pa.Array:
    """Return the zone's offsets from UTC as texts; each distinct one is written once."""
    ahead = pc.divide(pc.subtract(local.cast(pa.int64()), instants.cast(pa.int64())), 60_000_000)
    encoded = pc.dictionary_encode(ahead)
    said = [_offset_text(part, each) for each in encoded.dictionary.to_pylist()]
    return pa.array(said, pa.string()).take(encoded.indices)


def _offset_text(part: Part, minutes: int) -> str:
    if part.letter == "X" and not minutes:
        return "Z"
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    if part.letter != "Z" and part.count == 1:
        return f"{sign}{hours:02}" + (f"{rest:02}" if rest else "")
    return f"{sign}{hours:02}{':' if part.count == 3 else ''}{rest:02}"
