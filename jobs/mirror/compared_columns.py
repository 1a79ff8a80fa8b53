"""Compared columns: which columns of a source and of its mirror hold the same values, and as which text both say them.

Each value has one text on both sides: the source makes it by PostgreSQL's expression, the mirror by Spark's. So rows
need not come over the network to be compared: their digests do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyiceberg import types as ice
from pyiceberg.schema import Schema

Expression = Callable[[str], str]

_MICROSECOND = "interval '1 microsecond'"


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a type are said.

    Attributes:
        name: For people.
        postgresql: Of an expression, that of its text.
        spark: Likewise.
        value: Of an expression of the text, and of the column's type, that of the value in PostgreSQL; None of what is
            no key.
        shown: A text as people read the value.
    """

    name: str
    postgresql: Expression
    spark: Expression
    value: Callable[[str, str], str] | None = None
    shown: Callable[[str], str] = str


def _cast(text: str, declared: str) -> str:
    return f"{text}::{declared}"


def _epoch(expression: str) -> str:
    whole = f"round(extract(epoch FROM {expression}) * 1000000)::bigint::text"
    return f"CASE WHEN isfinite({expression}) THEN {whole} ELSE {expression}::text END"


def _day(text: str) -> str:
    return _since(text, lambda days: str(date(1970, 1, 1) + timedelta(days=days)), "days")


def _moment(text: str) -> str:
    def moment(microseconds: int) -> str:
        return str(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).removesuffix("+00:00")

    return _since(text, moment, "microseconds")


def _since(text: str, shown: Callable[[int], str], unit: str) -> str:
    if not text.lstrip("-").isdigit():
        return text
    try:
        return shown(int(text))
    except OverflowError:
        # Before the year 1, and after 9999, PostgreSQL's calendar goes on.
        return f"{text} {unit} since 1970"


def _decimal(scale: int) -> Kind:
    def postgresql(each: str) -> str:
        return f"{each}::numeric(38,{scale})::text"

    def spark(each: str) -> str:
        # A cast writes small ones as 1E-8 where `spark.sql.ansi.enabled` is false.
        return f"replace(format_number({each}, {scale}), ',', '')"

    return Kind(f"decimal of scale {scale}", postgresql, spark, _cast)


def _as_string(expression: str) -> str:
    return f"CAST({expression} AS STRING)"


def _bits(java: str, bits: int, sends: str) -> Kind:
    sql = "int" if bits == 32 else "bigint"

    def postgresql(each: str) -> str:
        return f"('x' || encode({sends}({each}), 'hex'))::bit({bits})::{sql}::text"

    return Kind("number", postgresql, lambda each: f"java_method('java.lang.{java}', {each})")


# `concat` writes values as they are sent: a `char(5)` with its blanks, an address without its mask.
TEXT = Kind("text", lambda each: f"concat({each})", _as_string, _cast)
INTEGER = Kind("whole number", lambda each: f"{each}::text", _as_string, _cast)
BOOLEAN = Kind("truth", lambda each: f"{each}::text", _as_string, _cast)
FLOAT = _bits("Float', 'floatToIntBits", 32, "float4send")
DOUBLE = _bits("Double', 'doubleToLongBits", 64, "float8send")
# A `real` may have come as the number that it is, or as the digits that it is written in.
WIDENED = Kind("number", FLOAT.postgresql, lambda each: FLOAT.spark(f"CAST({each} AS FLOAT)"))
BYTES = Kind(
    "bytes",
    lambda each: f"encode({each}, 'hex')",
    lambda each: f"lower(hex({each}))",
    lambda text, declared: f"decode({text}, 'hex')",
)
DATE = Kind(
    "date",
    lambda each: f"CASE WHEN isfinite({each}) THEN ({each} - DATE '1970-01-01')::text ELSE {each}::text END",
    lambda each: f"CAST(unix_date({each}) AS STRING)",
    lambda text, declared: f"(DATE '1970-01-01' + {text}::int)",
    _day,
)
# Spark's session is one of UTC.
_MICROS: Expression = lambda each: f"CAST(unix_micros(CAST({each} AS TIMESTAMP)) AS STRING)"  # noqa: E731
TIMESTAMP = Kind(
    "time", _epoch, _MICROS, lambda text, _: f"(TIMESTAMP 'epoch' + {text}::bigint * {_MICROSECOND})", _moment
)
TIMESTAMPTZ = Kind(
    "time",
    _epoch,
    _MICROS,
    lambda text, _: f"(TIMESTAMPTZ '1970-01-01 00:00:00+00' + {text}::bigint * {_MICROSECOND})",
    _moment,
)

_TEXTS = frozenset(
    {
        *("text", "varchar", "bpchar", "name", "citext", "json", "jsonb", "xml", "uuid", "inet", "cidr", "ltree"),
        *("macaddr", "macaddr8", "int4range", "int8range", "numrange", "numeric", "enum"),
    }
)
_WHOLE = frozenset({"int2", "int4", "int8", "oid"})
_PAIRS: Sequence[tuple[Collection[str], tuple[type[ice.IcebergType], ...], Kind]] = (
    (_WHOLE, (ice.IntegerType, ice.LongType), INTEGER),
    ({"bool"}, (ice.BooleanType,), BOOLEAN),
    (_TEXTS, (ice.StringType,), TEXT),
    ({"uuid"}, (ice.UUIDType,), TEXT),
    ({"float4"}, (ice.FloatType,), FLOAT),
    ({"float4"}, (ice.DoubleType,), WIDENED),
    ({"float8"}, (ice.DoubleType,), DOUBLE),
    ({"date"}, (ice.DateType,), DATE),
    ({"timestamp"}, (ice.TimestampType, ice.TimestamptzType), TIMESTAMP),
    ({"timestamptz"}, (ice.TimestamptzType,), TIMESTAMPTZ),
    ({"bytea"}, (ice.BinaryType, ice.FixedType), BYTES),
)


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        declared: Its type as the source writes it.
        kind: The name of its type, of a domain that of what it is made of; `enum` of any enumeration.
        element: Of an array, that of its elements.
        scale: Of a `numeric` with one.
    """

    declared: str
    kind: str
    element: str | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both sides have.

    Attributes:
        name: On both sides.
        kind: How its values are said.
        declared: Its type at the source.
    """

    name: str
    kind: Kind
    declared: str


def kind_of(source: SourceColumn, mirror: ice.IcebergType) -> Kind | None:
    """How values of a column are said on both sides; None if they cannot be compared."""
    if isinstance(mirror, ice.ListType):
        if source.element is None:
            return None
        element = kind_of(SourceColumn(source.element, source.element, scale=source.scale), mirror.element_type)
        # Spark calls no method of Java's for each element.
        return None if element is None or element in (FLOAT, DOUBLE, WIDENED) else _list_of(element)
    if isinstance(mirror, ice.DecimalType):
        scale = 2 if source.kind == "money" else source.scale if source.kind == "numeric" else None
        return None if scale is None or not 0 <= scale <= mirror.scale else _decimal(mirror.scale)
    for names, kinds, kind in _PAIRS:
        if source.kind in names and isinstance(mirror, kinds):
            return kind
    return None


def compared_columns(
    source: Mapping[str, SourceColumn], mirror: Schema, columns: Sequence[str], exclude: Collection[str]
) -> tuple[tuple[ComparedColumn, ...], tuple[tuple[str, str], ...]]:
    """The columns that are compared, and those that are not, each with the reason.

    Args:
        source: Its columns by name.
        mirror: Its schema.
        columns: Which of the mirror's are the row's.
        exclude: Those that the file leaves out.
    """
    compared: list[ComparedColumn] = []
    left: list[tuple[str, str]] = []
    for name in columns:
        there, kind = source.get(name), mirror.find_type(name)
        if name in exclude:
            left.append((name, "excluded by the stream's file"))
        elif there is None:
            left.append((name, "the source has no such column"))
        elif (found := kind_of(there, kind)) is None:
            left.append((name, f"{there.declared} at the source, and {kind} in the mirror"))
        else:
            compared.append(ComparedColumn(name, found, there.declared))
    left += [(name, "the mirror has no such column") for name in source if name not in columns]
    return tuple(compared), tuple(left)


def postgresql_item(kind: Kind, expression: str) -> str:
    """Of an expression, that of its text with its length before it, and `n` of a null."""
    text = kind.postgresql(expression)
    return f"CASE WHEN {expression} IS NULL THEN 'n' ELSE concat(char_length({text}), ':', {text}) END"


def spark_item(kind: Kind, expression: str) -> str:
    """The same by Spark."""
    text = kind.spark(expression)
    length = f"CAST(char_length({text}) AS STRING)"
    return f"CASE WHEN {expression} IS NULL THEN 'n' ELSE concat({length}, ':', {text}) END"


def _list_of(element: Kind) -> Kind:
    def postgresql(each: str) -> str:
        item = postgresql_item(element, "frazil_v")
        made = f"string_agg({item}, '' ORDER BY frazil_n)"
        return f"(SELECT coalesce({made}, '') FROM unnest({each}) WITH ORDINALITY AS frazil_u(frazil_v, frazil_n))"

    def spark(each: str) -> str:
        return f"array_join(transform({each}, frazil_v -> {spark_item(element, 'frazil_v')}), '')"

    return Kind(f"list of {element.name}", postgresql, spark)
