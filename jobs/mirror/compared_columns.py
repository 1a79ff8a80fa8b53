"""Columns that a source and its mirror have in common, and digests of their rows in the SQL of PostgreSQL and of Spark.

Each value has the same text on both sides, so rows are compared by digests of these texts and stay where they are.
Keys are spread over leaves by a hash, and leaves over the buckets of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.consistency import BUCKETS

Expression = Callable[[str], str]

LEAVES = BUCKETS * 1024
_HEX = 15
_MICROSECOND = "interval '1 microsecond'"


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a type become texts.

    Attributes:
        postgresql: Gives the expression of a value's text in PostgreSQL.
        spark: The same in Spark.
        value: Gives PostgreSQL's expression of the value, from that of its text and the column's type; None of types
            that are no keys.
        shown: Gives the value as people read it, from its text.
    """

    postgresql: Expression
    spark: Expression
    value: Callable[[str, str], str] | None = None
    shown: Callable[[str], str] = str


def _cast(text: str, declared: str) -> str:
    return f"{text}::{declared}"


def _epoch(expression: str) -> str:
    whole = f"round(extract(epoch FROM {expression}) * 1000000)::bigint::text"
    return f"CASE WHEN isfinite({expression}) THEN {whole} ELSE {expression}::text END"


def _since_1970(unit: str) -> Callable[[str], str]:
    """What shows a count of units since 1970 as a time; `infinity` stays as it is."""
    return lambda text: str(np.datetime64(int(text), unit)) if text.lstrip("-").isdigit() else text


def _decimal(scale: int) -> Kind:
    def postgresql(each: str) -> str:
        return f"{each}::numeric(38,{scale})::text"

    def spark(each: str) -> str:
        # A cast writes small ones as 1E-8 where `spark.sql.ansi.enabled` is false.
        return f"replace(format_number({each}, {scale}), ',', '')"

    return Kind(postgresql, spark, _cast)


def _as_string(expression: str) -> str:
    return f"CAST({expression} AS STRING)"


def _bits(java: str, bits: int, sends: str) -> Kind:
    sql = "int" if bits == 32 else "bigint"

    def postgresql(each: str) -> str:
        return f"('x' || encode({sends}({each}), 'hex'))::bit({bits})::{sql}::text"

    return Kind(postgresql, lambda each: f"java_method('java.lang.{java}', {each})")


# `concat` writes values as they are sent: a `char(5)` with its blanks, an address without its mask.
TEXT = Kind(lambda each: f"concat({each})", _as_string, _cast)
INTEGER = Kind(lambda each: f"{each}::text", _as_string, _cast)
BOOLEAN = Kind(lambda each: f"{each}::text", _as_string, _cast)
FLOAT = _bits("Float', 'floatToIntBits", 32, "float4send")
DOUBLE = _bits("Double', 'doubleToLongBits", 64, "float8send")
# A `real` may have come as the number that it is, or as the digits that it is written in.
WIDENED = Kind(FLOAT.postgresql, lambda each: FLOAT.spark(f"CAST({each} AS FLOAT)"))
BYTES = Kind(
    lambda each: f"encode({each}, 'hex')",
    lambda each: f"lower(hex({each}))",
    lambda text, declared: f"decode({text}, 'hex')",
)
DATE = Kind(
    lambda each: f"CASE WHEN isfinite({each}) THEN ({each} - DATE '1970-01-01')::text ELSE {each}::text END",
    lambda each: f"CAST(unix_date({each}) AS STRING)",
    lambda text, declared: f"(DATE '1970-01-01' + {text}::int)",
    _since_1970("D"),
)
# Spark's session is one of UTC.
_MICROS: Expression = lambda each: f"CAST(unix_micros(CAST({each} AS TIMESTAMP)) AS STRING)"  # noqa: E731
TIMESTAMP = Kind(
    _epoch, _MICROS, lambda text, _: f"(TIMESTAMP 'epoch' + {text}::bigint * {_MICROSECOND})", _since_1970("us")
)
TIMESTAMPTZ = Kind(
    _epoch,
    _MICROS,
    lambda text, _: f"(TIMESTAMPTZ '1970-01-01 00:00:00+00' + {text}::bigint * {_MICROSECOND})",
    _since_1970("us"),
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


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Expressions over the columns of one side.

    Attributes:
        key_texts: The text of each column of the key.
        leaf: The number of the leaf, a whole number.
        row: The digest of the row, a whole number below 2 to the power of 60.
        columns: The digests of the other columns in their order, one text with commas between.
    """

    key_texts: tuple[str, ...]
    leaf: str
    row: str
    columns: str


def postgresql_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """Digests of a source's rows.

    Args:
        key: The columns of the key.
        columns: All others.
    """

    def joined(parts: Sequence[str], between: str = " || ") -> str:
        # No part is null. A function takes 100 arguments at the most, so `concat` would not do.
        return f"({between.join(parts)})" if parts else "''"

    def hashed(text: str) -> str:
        return f"md5(convert_to({text}, 'UTF8'))"

    def number(text: str) -> str:
        return f"('x' || substr({hashed(text)}, 1, {_HEX}))::bit({_HEX * 4})::bigint"

    keys = [_postgresql_item(each.kind, source_name(each.name)) for each in key]
    items = [_postgresql_item(each.kind, source_name(each.name)) for each in columns]
    return RowDigests(
        tuple(each.kind.postgresql(source_name(each.name)) for each in key),
        f"mod({number(joined(keys))}, {LEAVES})",
        number(joined([*keys, *items])),
        joined([f"substr({hashed(each)}, 1, 16)" for each in items], " || ',' || "),
    )


def spark_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """The same digests of a mirror's rows."""

    def joined(parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})" if parts else "''"

    def number(text: str) -> str:
        return f"CAST(conv(substr(md5({text}), 1, {_HEX}), 16, 10) AS BIGINT)"

    keys = [_spark_item(each.kind, quoted_name(each.name)) for each in key]
    items = [_spark_item(each.kind, quoted_name(each.name)) for each in columns]
    return RowDigests(
        tuple(each.kind.spark(quoted_name(each.name)) for each in key),
        f"mod({number(joined(keys))}, {LEAVES})",
        number(joined([*keys, *items])),
        f"concat_ws(',', {', '.join(f'substr(md5({each}), 1, 16)' for each in items)})" if items else "''",
    )


def source_name(name: str) -> str:
    """A name as PostgreSQL reads it, whatever it has in it."""
    return '"' + name.replace('"', '""') + '"'


def _postgresql_item(kind: Kind, expression: str) -> str:
    """Of an expression, that of its text with its length before it, and `n` of a null."""
    text = kind.postgresql(expression)
    return f"CASE WHEN {expression} IS NULL THEN 'n' ELSE concat(char_length({text}), ':', {text}) END"


def _spark_item(kind: Kind, expression: str) -> str:
    """The same by Spark."""
    text = kind.spark(expression)
    length = f"CAST(char_length({text}) AS STRING)"
    return f"CASE WHEN {expression} IS NULL THEN 'n' ELSE concat({length}, ':', {text}) END"


def _list_of(element: Kind) -> Kind:
    def postgresql(each: str) -> str:
        item = _postgresql_item(element, "frazil_v")
        made = f"string_agg({item}, '' ORDER BY frazil_n)"
        return f"(SELECT coalesce({made}, '') FROM unnest({each}) WITH ORDINALITY AS frazil_u(frazil_v, frazil_n))"

    def spark(each: str) -> str:
        return f"array_join(transform({each}, frazil_v -> {_spark_item(element, 'frazil_v')}), '')"

    return Kind(postgresql, spark)
