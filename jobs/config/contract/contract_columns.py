"""Columns of an evaluation: what kind of values they have, and the form in which both engines see them.

pandas and Spark do not agree on times, on missing whole numbers, on NaN and on columns with dots in their names. So the
rows that they see have whole numbers for dates and times, no NaN, and columns c0, c1, …
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
"""exact: the values. number: as doubles. sum: as decimals, or doubles. text: text only. presence: true, or null."""
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
    """An expectation that cannot be evaluated on these rows: a sentence without values of rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows.

    Attributes:
        name: As the contract has it: a path such as ``payer.iban``.
        parts: The path.
        kind: One of the keys of `_SAID`.
        scale: Digits behind the point, of decimals.
    """

    name: str
    parts: tuple[str, ...]
    kind: str
    scale: int = 0

    def of_hours(self) -> SeenColumn:
        """The column as rows are counted by, per hour.

        Raises:
            NotEvaluable: It does not hold times.
        """
        if self.kind not in ("timestamp", "timestamptz"):
            raise NotEvaluable(f"column {self.name} does not hold times, and this expectation is about rows per hour")
        return self.in_form("exact")

    def in_form(self, form: Form) -> SeenColumn:
        """The column as an engine is to see it.

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
        scale: Digits behind the point, where it is seen as decimals.
    """

    column: Column
    form: Form
    scale: int = 0

    @property
    def stored(self) -> str:
        """What the engine has: int, decimal, double, string, boolean."""
        kind = self.column.kind
        if self.form == "presence":
            return "boolean"
        if self.form == "number" or kind == "float":
            return "double"
        if kind == "decimal" or self.form == "sum":
            return "decimal"
        return "int" if kind == "integer" or kind in TIMES else "boolean" if kind == "boolean" else "string"

    def argument(self, value: Any) -> Any:
        """A value of an argument in the form of the column's.

        Raises:
            NotEvaluable: It is none of the column's kind.
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
        """A value of the engine as people read it."""
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
    """A number as people read it, without a type of pandas or Spark around it."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return f"{float(value):.15g}"
    return str(int(value))


def seen_together(columns: Sequence[Column], form: Form) -> list[SeenColumn]:
    """Columns whose values are compared with each other, or summed, in one form.

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
    """A column of rows of a schema, by its name or its path.

    Raises:
        NotEvaluable: The rows do not have it.
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
    """A column of a table, by its name or its path; None: there is none, or of its type nothing is known here."""
    top = {field.name: field.field_type for field in schema.fields}
    parts = (name,) if name in top else path_parts(name)
    found = type_at(schema, parts)
    kind = declared_kind(found) if found is not None else None
    return Column(name, parts, kind, found.scale if isinstance(found, DecimalType) else 0) if kind else None


def declared_kind(data_type: IcebergType) -> str | None:
    """What `kind_of` says of rows that a table has of a type; None of a type that it does not know."""
    if isinstance(data_type, FixedType):
        return "uuid" if len(data_type) == 16 else "binary"
    return _KINDS.get(type(data_type))


def kind_of(data_type: pa.DataType) -> str:
    """What kind of values a column of a type has."""
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
    """Days, or microseconds, since the epoch; since midnight for a time of day; None: it is none."""
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
    # pandas has a value for a missing one that compares with nothing, and floats have NaN.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
