"""TimestampConverter of Kafka Connect: converts between texts, numbers since 1970 and times, through milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.columns.text_values import beyond_years
from jobs.records.formats.interface.problems import (
    BAD_TIMESTAMP,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    BadValue,
    shown,
)
from jobs.records.schema.declared import Primitive
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.time_patterns import Part, TimeTexts, parse_pattern
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    no_column,
    retyped,
)
from jobs.records.transforms.masks import nulled, rows_where
from jobs.records.transforms.smt.known import Known, Properties
from jobs.records.transforms.smt.simple_date_format import SimpleDateFormat, simple_date_format
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

TARGETS: dict[str, ice.IcebergType] = {
    "string": ice.StringType(),
    "unix": ice.LongType(),
    "Date": ice.DateType(),
    "Time": ice.TimeType(),
    "Timestamp": ice.TimestamptzType(),
}
_READ = (ice.LongType, ice.StringType, ice.TimestampType, ice.TimestamptzType, ice.DateType, ice.TimeType)
_PRECISIONS = ("milliseconds", "seconds", "microseconds", "nanoseconds")
_FINER = {"microseconds": 1_000, "nanoseconds": 1_000_000}
_DAY = 86_400_000
_MOST = 2**63 - 1
Made = tuple[pa.Array, list[BadValue]]


@dataclass(frozen=True)
class ConvertTimestamp(Transform):
    """Convert one column to another form of a time.

    Attributes:
        column: Name of the column at the top.
        target: A key of `TARGETS`.
        format: Format of texts that are read, or written.
        precision: Unit of numbers that are read, or written.
        lenient: Whether finer parts than milliseconds are cut off, texts are read that are not exactly a time, and
            texts are written for any year.
    """

    name: ClassVar[str] = "timestamp_converter"
    column: str
    target: str
    format: SimpleDateFormat | None
    precision: str
    lenient: bool

    def output(self, columns: Columns) -> Columns:
        kind = columns.field(self.column, ("field",)).field_type
        if not isinstance(kind, _READ):
            known = "TimestampConverter reads string, long, date, time, timestamp and timestamptz"
            raise TransformProblem(f"the column '{self.column}' is {schema_text(kind)}; {known}", ("field",))
        if isinstance(kind, ice.StringType) and self.format is None:
            raise TransformProblem(f"the column '{self.column}' is text, which needs 'format'", ())
        if isinstance(kind, ice.StringType) and self.format is not None and (why := self.format.unreadable):
            raise TransformProblem(f"no text is read by the pattern '{self.format.text}': {why}", ("format",))
        return Columns(
            tuple(retyped(each, TARGETS[self.target]) if each.name == self.column else each for each in columns)
        )

    def apply(self, rows: Rows) -> Applied:
        """Convert through milliseconds; a row fails if its time is not whole in them, unless the step is lenient."""
        into = rows.columns.behind(self)
        at = rows.columns.index(self.column)
        ms, bad = self._read(rows.batch.column(at))
        made, more = self._written(ms)
        arrays = [*rows.batch.columns[:at], made.cast(into.arrow.field(at).type), *rows.batch.columns[at + 1 :]]
        failures = [RowFailure(e.index, e.error_class, e.message, f"$.{self.column}") for e in (*bad, *more)]
        return settled(rows.with_batch(into, arrays), failures)

    def _read(self, array: pa.Array) -> Made:
        kind = array.type
        if pa.types.is_string(kind):
            return self._of_text(array)
        if pa.types.is_int64(kind):
            return self._of_unix(array)
        if pa.types.is_date(kind):
            return pc.multiply(array.cast(pa.int32()).cast(pa.int64()), _DAY), []
        return self._whole(array.cast(pa.int64()), 1_000, floor=True)

    def _of_unix(self, array: pa.Array) -> Made:
        if self.precision == "milliseconds":
            return array, []
        if self.precision == "seconds":
            far = rows_where(pc.greater(pc.abs(array), _MOST // 1_000))
            return pc.multiply(nulled(array, far), 1_000), [
                BadValue(each, OUT_OF_RANGE, f"needs seconds since 1970, found {array[each]}") for each in far
            ]
        return self._whole(array, _FINER[self.precision])

    def _whole(self, array: pa.Array, per: int, *, floor: bool = False) -> Made:
        found = pc.divide(array, per)
        rest = pc.subtract(array, pc.multiply(found, per))
        if floor:
            found = pc.subtract(found, pc.less(rest, 0).cast(pa.int64()))
        fine = [] if self.lenient else rows_where(pc.not_equal(rest, 0))
        said = "needs whole milliseconds, which is all that TimestampConverter keeps, found a finer part"
        return found, [BadValue(each, PRECISION_LOSS, said) for each in fine]

    def _of_text(self, array: pa.Array) -> Made:
        """Read texts that match the pattern exactly together, others one by one."""
        assert self.format is not None
        found, left = _side_by_side(array, self.format)
        if not len(left):
            return found, []
        values: list[int | None] = []
        bad: list[BadValue] = []
        for index in left.tolist():
            text = array[index].as_py()
            parsed = self.format.parsed(text)
            if parsed is not None and (parsed[1] or self.lenient):
                values.append(parsed[0])
                continue
            values.append(None)
            bad.append(BadValue(index, BAD_TIMESTAMP, f"needs a time as {self.format.text}, found {shown(text)}"))
        mask = np.zeros(len(array), dtype=bool)
        mask[left] = True
        return pc.replace_with_mask(found, pa.array(mask), pa.array(values, pa.int64())), bad

    def _written(self, ms: pa.Array) -> Made:
        if self.target == "unix":
            return self._unix(ms)
        days = pc.divide(ms, _DAY)
        days = pc.subtract(days, pc.less(pc.subtract(ms, pc.multiply(days, _DAY)), 0).cast(pa.int64()))
        if self.target == "Time":
            return pc.multiply(pc.subtract(ms, pc.multiply(days, _DAY)), 1_000).cast(pa.time64("us")), []
        anyhow = self.target == "string" and self.lenient
        far = [] if anyhow else rows_where(beyond_years(ms.cast(pa.timestamp("ms"))))
        said = "needs a time in the years 0001 to 9999, found {} milliseconds since 1970"
        bad = [BadValue(each, OUT_OF_RANGE, said.format(ms[each])) for each in far]
        if self.target == "Date":
            return nulled(days, far).cast(pa.int32()).cast(pa.date32()), bad
        ms = nulled(ms, far)
        if self.target == "Timestamp":
            return ms.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")), bad
        assert self.format is not None
        odd = [] if self.lenient else rows_where(self.format.miswritten(ms))
        said = f"needs milliseconds that {self.format.text} writes as a fraction, found others: S counts them"
        return self.format.written(ms), [*bad, *(BadValue(each, BAD_TIMESTAMP, said) for each in odd)]

    def _unix(self, ms: pa.Array) -> Made:
        if self.precision == "seconds":
            found = pc.divide(ms, 1_000)
            fine = [] if self.lenient else rows_where(pc.not_equal(pc.multiply(found, 1_000), ms))
            return found, [BadValue(e, PRECISION_LOSS, "needs whole seconds, found a finer part") for e in fine]
        per = _FINER.get(self.precision, 1)
        far = rows_where(pc.greater(pc.abs(ms), _MOST // per))
        said = f"needs {self.precision} in 64 bits, found a time beyond them"
        return pc.multiply(nulled(ms, far), per), [BadValue(each, OUT_OF_RANGE, said) for each in far]


def _side_by_side(array: pa.Array, format_: SimpleDateFormat) -> tuple[pa.Array, np.ndarray]:
    """Return milliseconds of texts that frazil's own patterns read as well, and the indices of the others."""
    nothing = pa.nulls(len(array), pa.int64())
    every = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    letters = format_.letters
    # Other letters mean another thing in those patterns.
    if format_.counts_milliseconds or letters - set("yMdHhamsSXZ") or any(_short(part) for part in format_.parts):
        return nothing, every
    kind = "timestamptz" if letters & set("yMd") else "time"
    try:
        pattern = parse_pattern(format_.text, kind)
    except ValueError:
        return nothing, every
    texts = TimeTexts((pattern,), "UTC" if kind == "timestamptz" and not pattern.zoned else None)
    read, bad = convert_leaf(Primitive(kind, encoding="pattern", texts=texts), array, required=False)
    return pc.divide(read.cast(pa.int64()), 1_000), np.array([each.index for each in bad], np.int64)


def _short(part: Part) -> bool:
    """Return whether it is an offset of only hours, which has minutes in the other patterns."""
    return part.letter == "X" and part.count == 1


def converter(properties: Properties, name: str, *, lenient: bool) -> ConvertTimestamp:
    """Return the step on a column.

    Raises:
        TransformProblem: A property has an invalid value.
    """
    target = properties.choice("target.type", tuple(TARGETS))
    precision = properties.choice("unix.precision", _PRECISIONS, "milliseconds", ignore_case=True)
    text = properties.text("format")
    if target == "string" and not text:
        raise TransformProblem("TimestampConverter needs 'format' to write text", ("target.type",))
    format_ = simple_date_format(text, "format") if text else None
    return ConvertTimestamp(name, target, format_, precision, lenient)


def _steps(properties: Properties, columns: Columns, lenient: bool) -> Sequence[Transform]:
    name = properties.text("field")
    step = converter(properties, name, lenient=lenient)
    if not name:
        raise TransformProblem("TimestampConverter of a whole value needs a column here: write field", ())
    if name not in columns.names:
        if lenient:
            return []
        hint = "; lenient: true passes over it, as Kafka Connect does"
        raise TransformProblem(no_column(name, columns.names) + hint, ("field",))
    return [step]


TIMESTAMP_CONVERTER = Known(
    "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    ("target.type", "field", "format", "unix.precision", "replace.null.with.default"),
    _steps,
)
