"""Set: columns with the same value in every row, or with Kafka's metadata of the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import INVALID_UTF8, BadValue
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.kafka_columns import TYPES
from jobs.records.transforms.cast import cast_problem, cast_values, type_of
from jobs.records.transforms.columns import Columns, TransformProblem, column
from jobs.records.transforms.frame import FETCHED, Frame
from jobs.records.transforms.transform import (
    Applied,
    RowFailure,
    Rows,
    Transform,
    settled,
)

HEADER = "header:"
SOURCES = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key")


@dataclass(frozen=True, slots=True)
class SetColumn:
    """A column to set.

    Attributes:
        name: Its name.
        literal: The value of every row; None if `source` gives it, or for null.
        source: One of `SOURCES`, or `header:` and the name of a header; the last one of the name counts.
        type: The type in the words of schema text; None for that of the literal or the source, string for key and
            headers.
        replace: Whether a column of the name may exist, which is then replaced.
    """

    name: str
    literal: str | bool | int | float | None = None
    source: str | None = None
    type: str | None = None
    replace: bool = False

    @property
    def kind(self) -> ice.IcebergType:
        """Return the column's type.

        Raises:
            TransformProblem: The text is no type.
        """
        return type_of(self.type, (self.name, "type")) if self.type else self.natural

    @property
    def natural(self) -> ice.IcebergType:
        """Return the type that the column has without a given one."""
        if self.source is not None:
            of_bytes = self.source == "key" or self.source.startswith(HEADER)
            return ice.StringType() if of_bytes else TYPES[self.source]
        match self.literal:
            case bool():
                return ice.BooleanType()
            case int():
                return ice.LongType()
            case float():
                return ice.DoubleType()
            case _:
                return ice.StringType()


@dataclass(frozen=True, slots=True)
class Set(Transform):
    """Add columns behind the others, or replace those of the same names.

    Attributes:
        values: The columns, in order.
    """

    name: ClassVar[str] = "set"
    values: tuple[SetColumn, ...]

    @property
    def asks(self) -> frozenset[str]:
        """Return the parts of the record that it sets."""
        parts = {"headers" if (each.source or "").startswith(HEADER) else each.source for each in self.values}
        return frozenset(part for part in parts if part in FETCHED)

    @property
    def adds(self) -> frozenset[str] | None:
        """Return the names that it sets, unless one replaces another column."""
        return None if any(each.replace for each in self.values) else frozenset(each.name for each in self.values)

    def output(self, columns: Columns) -> Columns:
        fields = list(columns.fields)
        for each in self.values:
            made = column(each.name, self._kind(each), required=each.literal is not None)
            at = next((number for number, field in enumerate(fields) if field.name == each.name), None)
            if at is None:
                fields.append(made)
            elif each.replace:
                fields[at] = made
            else:
                raise TransformProblem(
                    f"there is a column '{each.name}' already; say replace: true to put this one in its place",
                    (each.name,),
                )
        return Columns.of(fields)

    def _kind(self, each: SetColumn) -> ice.IcebergType:
        kind = each.kind
        if each.source is None and each.literal is None:
            return kind
        raw = isinstance(kind, ice.BinaryType) and (each.source == "key" or (each.source or "").startswith(HEADER))
        if not raw and (problem := cast_problem(each.natural, kind)):
            raise TransformProblem(f"the column '{each.name}': {problem}", (each.name, "type"))
        if each.source is None and (bad := cast_values(_literal(each, 1), each.natural, kind)[1]):
            raise TransformProblem(f"the column '{each.name}': {bad[0].message}", (each.name, "value"))
        return kind

    def apply(self, rows: Rows) -> Applied:
        """Set the same value in every row, or that of its record."""
        into = rows.columns.behind(self)
        arrays = dict(zip(rows.columns.names, rows.batch.columns, strict=True))
        failures: list[RowFailure] = []
        for each in self.values:
            arrays[each.name], bad = _values(each, rows)
            failures += [RowFailure(one.index, one.error_class, one.message, f"$.{each.name}") for one in bad]
        return settled(rows.with_batch(into, [arrays[name] for name in into.names]), failures)


def _literal(each: SetColumn, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(each.literal, rows_arrow_type(each.natural)), count)


def _values(each: SetColumn, rows: Rows) -> tuple[pa.Array, list[BadValue]]:
    kind = each.kind
    if each.source is None and each.literal is None:
        return pa.nulls(rows.count, rows_arrow_type(kind)), []
    if each.source is None:
        one, bad = cast_values(_literal(each, 1), each.natural, kind)
        return pa.repeat(one[0], rows.count), bad
    if each.source != "key" and not each.source.startswith(HEADER):
        return cast_values(rows.frame.part(each.source), each.natural, kind)
    raw = rows.frame.part("key") if each.source == "key" else last_header(rows.frame, each.source[len(HEADER) :])
    if isinstance(kind, ice.BinaryType):
        return raw, []
    text, bad = text_of(raw)
    found, more = cast_values(text, ice.StringType(), kind)
    return found, [*bad, *more]


def text_of(raw: pa.Array) -> tuple[pa.Array, list[BadValue]]:
    """Return bytes as text in UTF-8, and failures of those that are none."""
    try:
        return raw.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    bad: list[BadValue] = []
    texts: list[str | None] = []
    for index, each in enumerate(raw.to_pylist()):
        try:
            texts.append(None if each is None else each.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(None)
            bad.append(BadValue(index, INVALID_UTF8, "needs text in UTF-8, found other bytes"))
    return pa.array(texts, pa.string()), bad


def last_header(frame: Frame, name: str) -> pa.Array:
    """Return the value of each record's last header of a name; null without one."""
    headers = frame.part("headers")
    entries = headers.flatten()
    hits = np.flatnonzero(
        pc.fill_null(pc.equal(pc.struct_field(entries, "key"), name), False).to_numpy(zero_copy_only=False)
    )
    last = np.full(len(headers), -1, np.int64)
    # A later header overwrites an earlier one.
    last[pc.list_parent_indices(headers).to_numpy()[hits]] = hits
    return pc.struct_field(entries, "value").take(pa.array(last, mask=last < 0))
