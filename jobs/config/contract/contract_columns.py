"""Columns of an evaluation: the kind of their values, and the form in which pandas and Spark see them.

pandas and Spark do not agree on times, on missing integers, on NaN and on column names with dots. So the rows that they
get have integers for dates and times, no NaN, and columns c0, c1, …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.config.values.mask import path_parts
from jobs.records.schema.iceberg_schema import type_at

if TYPE_CHECKING:
    import pyarrow as pa

Form = Literal["exact", "number", "sum", "text", "presence"]
"""exact: unchanged values. number: doubles. sum: decimals or doubles. text: text only. presence: true or null."""
NUMBERS = ("integer", "decimal", "float")
TIMES = ("date", "time", "timestamp", "timestamptz")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAID = {
    "integer": "whole numbers", "decimal": "decimals", "float": "numbers", "string": "text", "boolean": "true or false",
    "date": "dates", "time": "times of day", "timestamp": "times without a zone", "timestamptz": "times",
    "uuid": "UUIDs", "binary": "bytes", "nested": "lists, maps or structs",
}  # fmt: skip
_KINDS: dict[type[IcebergType], str] = {
    IntegerType: "integer", LongType: "integer", DecimalType: "decimal", FloatType: "float", DoubleType: "float",
    StringType: "string", BooleanType: "boolean", DateType: "date", TimeType: "time", UUIDType: "uuid",
    TimestampType: "timestamp", TimestampNanoType: "timestamp", TimestamptzType: "timestamptz",
    TimestamptzNanoType: "timestamptz", BinaryType: "binary",
    StructType: "nested", ListType: "nested", MapType: "nested",
}  # fmt: skip


class NotEvaluable(Exception):
    """An expectation cannot be evaluated on these rows; the message contains no values of rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows.

    Attributes:
        name: Name in the contract: a path such as ``payer.iban``.
        parts: Parts of the path.
        kind: Kind of the values; a key of `_SAID`.
        scale: Scale of decimals.
    """

    name: str
    parts: tuple[str, ...]
    kind: str
    scale: int = 0

    def of_hours(self) -> SeenColumn:
        """Return the column in a form for counting rows per hour.

        Raises:
            NotEvaluable: The column does not hold times.
        """
        if self.kind not in ("timestamp", "timestamptz"):
            raise NotEvaluable(f"column {self.name} is not a time, and this expectation is about rows per hour")
        return self.in_form("exact")

    def in_form(self, form: Form) -> SeenColumn:
        """Return the column in a form for the engines.

        Raises:
            NotEvaluable: Its values have no such form.
        """
        wanted = {"number": (*NUMBERS, *TIMES), "sum": NUMBERS, "text": ("string", "uuid")}.get(form)
        if form == "exact" and self.kind == "nested":
            raise NotEvaluable(f"column {self.name} holds {_SAID['nested']}; name a field within it")
        if wanted is not None and self.kind not in wanted:
            about = {"number": "numbers and times", "sum": "numbers", "text": "text"}[form]
            raise NotEvaluable(f"column {self.name} holds {_SAID[self.kind]}, and this expectation is about {about}")
        if form == "presence" and self.kind != "nested":
            form = "exact"
        return SeenColumn(self, "exact" if form == "text" else form, self.scale)


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A column in the form in which the engines see it.

    Attributes:
        scale: Scale, for the form of decimals.
    """

    column: Column
    form: Form
    scale: int = 0

    @property
    def stored(self) -> str:
        """Type in the engine: int, decimal, double, string or boolean."""
        kind = self.column.kind
        if self.form == "presence":
            return "boolean"
        if self.form == "number" or kind == "float":
            return "double"
        if kind == "decimal" or self.form == "sum":
            return "decimal"
        return "int" if kind == "integer" or kind in TIMES else "boolean" if kind == "boolean" else "string"

    def argument(self, value: Any) -> Any:
        """Convert a value of an argument to the column's form.

        Raises:
            NotEvaluable: The value is not of the column's kind.
        """
        if value is None:
            return None
        kind, text = self.column.kind, isinstance(value, str)
        if kind == "boolean" and isinstance(value, bool) and self.stored == "boolean":
            return value
        if kind in TIMES and (text or isinstance(value, date)):
            counted = _counted(kind, str(value))
            if counted is not None:
                return float(counted) if self.stored == "double" else counted
        elif kind in NUMBERS and not isinstance(value, bool) and isinstance(value, (int, float)):
            return (
                float(value) if self.stored == "double" else Decimal(str(value)) if self.stored == "decimal" else value
            )
        elif kind in ("string", "uuid", "binary") and isinstance(value, str):
            return value if kind == "string" else value.lower()
        raise NotEvaluable(f"column {self.column.name} holds {_SAID[kind]}, and {value!r} is none")

    def shown(self, value: Any) -> str:
        """Format a value of the engine for people."""
        if _missing(value):
            return "null"
        if self.form == "presence":
            return "a value"
        kind = self.column.kind
        if kind in TIMES:
            return _as_time(kind, value)
        if kind == "boolean":
            return "true" if value else "false"
        return shown_number(value) if kind in NUMBERS else str(value)


def shown_number(value: Any) -> str:
    """Format a number for people, whatever type of pandas or Spark it has."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return f"{float(value):.15g}"
    return str(int(value))


def seen_together(columns: Sequence[Column], form: Form) -> list[SeenColumn]:
    """Return columns whose values are compared or summed, in one common form.

    Raises:
        NotEvaluable: Their values cannot be compared.
    """
    seen = [column.in_form(form) for column in columns]
    kinds = {column.kind for column in columns}
    if form != "sum" and (len(kinds) == 1 and kinds != {"decimal"}):
        return seen
    if not kinds <= set(NUMBERS):
        said = " and ".join(f"{column.name} ({_SAID[column.kind]})" for column in columns)
        raise NotEvaluable(f"the columns {said} cannot be compared")
    if "float" in kinds:
        return [SeenColumn(column, "number") for column in columns]
    scale = max(column.scale for column in columns)
    return [SeenColumn(column, "sum", scale) for column in columns]


def find_column(schema: pa.Schema, name: str) -> Column:
    """Find a column in a schema of rows, by its name or its path.

    Raises:
        NotEvaluable: The rows have no such column.
    """
    import pyarrow as pa

    parts = (name,) if name in schema.names else path_parts(name)
    level: Any = schema
    found: pa.DataType | None = None
    for number, part in enumerate(parts):
        names = [field.name for field in level] if level is not None else []
        if level is None or part not in names:
            within = f" within {'.'.join(parts[:number])}" if number else ""
            raise NotEvaluable(f"the rows have no column {name}: there is no {part}{within}")
        found = level.field(part).type
        level = found if found is not None and pa.types.is_struct(found) else None
    assert found is not None
    return Column(name, parts, kind_of(found), found.scale if pa.types.is_decimal(found) else 0)


def declared_column(schema: Schema, name: str) -> Column | None:
    """Find a column in a table's schema, by its name or its path; None if it is missing or has an unknown type."""
    top = {field.name: field.field_type for field in schema.fields}
    parts = (name,) if name in top else path_parts(name)
    found = type_at(schema, parts)
    kind = declared_kind(found) if found is not None else None
    return Column(name, parts, kind, found.scale if isinstance(found, DecimalType) else 0) if kind else None


def declared_kind(data_type: IcebergType) -> str | None:
    """Return the kind of values in a column of an Iceberg type; None for an unknown type."""
    if isinstance(data_type, FixedType):
        return "uuid" if len(data_type) == 16 else "binary"
    return _KINDS.get(type(data_type))


def kind_of(data_type: pa.DataType) -> str:
    """Return the kind of values in a column of an Arrow type."""
    import pyarrow as pa

    t = pa.types
    if isinstance(data_type, pa.UuidType) or (t.is_fixed_size_binary(data_type) and data_type.byte_width == 16):
        return "uuid"
    if t.is_timestamp(data_type):
        return "timestamptz" if data_type.tz else "timestamp"
    for kind, is_it in (
        ("boolean", t.is_boolean), ("integer", t.is_integer), ("decimal", t.is_decimal), ("float", t.is_floating),
        ("date", t.is_date), ("time", t.is_time),
    ):  # fmt: skip
        if is_it(data_type):
            return kind
    if t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type):
        return "string"
    return "nested" if t.is_nested(data_type) else "binary"


def _counted(kind: str, text: str) -> int | None:
    """Return days or microseconds since the epoch, since midnight for a time of day; None if the text is none."""
    try:
        if kind == "time":
            at = time.fromisoformat(text)
            return ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if kind == "date":
        return (moment - _EPOCH).days if moment.time() == time() else None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _as_time(kind: str, value: Any) -> str:
    number = round(float(value)) if isinstance(value, float) else int(value)
    if kind == "date":
        return (_EPOCH + timedelta(days=number)).date().isoformat()
    moment = _EPOCH + timedelta(microseconds=number)
    if kind == "time":
        return moment.time().isoformat()
    return moment.isoformat().replace("+00:00", "Z" if kind == "timestamptz" else "")


def _missing(value: Any) -> bool:
    # pandas' missing values compare with nothing, and floats have NaN.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
