"""Columns that a source and its mirror share, and SQL of PostgreSQL and of Spark for digests of their rows.

Both sides turn a value into the same text. So digests of these texts are compared, and no row leaves its system. A hash
spreads keys over leaves, and leaves over the buckets of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.mirrors.check.consistency import BUCKETS
from jobs.quality.incremental_scan.offset_ranges import quoted_name

LEAVES = BUCKETS * 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """Templates that turn an expression of a type into a text, for both dialects of SQL.

    Attributes:
        postgresql: Template of the value's text in PostgreSQL.
        spark: Template of the same text in Spark.
        unit: Unit of a text that counts from 1970, as numpy calls it.
    """

    postgresql: str
    spark: str
    unit: str | None = None

    def shown(self, text: str) -> str:
        """The value as people read it."""
        # A time may be `infinity`.
        return (
            str(np.array(int(text), f"datetime64[{self.unit}]")) if self.unit and text.lstrip("-").isdigit() else text
        )


_STRING = "CAST({0} AS STRING)"
_BITS = "('x' || encode({send}({{0}}), 'hex'))::bit({bits})::{integer}::text"
_MICROS = "CAST(unix_micros(CAST({0} AS TIMESTAMP)) AS STRING)"
_EPOCH = "CASE WHEN isfinite({0}) THEN round(extract(epoch FROM {0}) * 1000000)::bigint::text ELSE {0}::text END"
# `concat` writes values as Debezium sends them: a `char(5)` with its blanks, an address without its mask.
TEXT = Kind("concat({0})", _STRING)
INTEGER = Kind("{0}::text", _STRING)
BOOLEAN = Kind("{0}::text", _STRING)
FLOAT = Kind(
    _BITS.format(send="float4send", bits=32, integer="int"), "java_method('java.lang.Float', 'floatToIntBits', {0})"
)
DOUBLE = Kind(
    _BITS.format(send="float8send", bits=64, integer="bigint"),
    "java_method('java.lang.Double', 'doubleToLongBits', {0})",
)
# A `real` in a wider column may hold the exact number, or the digits that the number is written in.
WIDENED = Kind(FLOAT.postgresql, FLOAT.spark.format("CAST({0} AS FLOAT)"))
BYTES = Kind("encode({0}, 'hex')", "lower(hex({0}))")
DATE = Kind(
    "CASE WHEN isfinite({0}) THEN ({0} - DATE '1970-01-01')::text ELSE {0}::text END",
    "CAST(unix_date({0}) AS STRING)",
    "D",
)
# The time zone of Spark's session is UTC.
TIMESTAMP = Kind(_EPOCH, _MICROS, "us")

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
    ({"timestamptz"}, (ice.TimestamptzType,), TIMESTAMP),
    ({"bytea"}, (ice.BinaryType, ice.FixedType), BYTES),
)


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        declared: Type as the source writes it.
        kind: Name of the type; of a domain the name of its base type, and `enum` for any enumeration.
        element: Name of an array's element type.
        scale: Scale of a `numeric` that has one.
    """

    declared: str
    kind: str
    element: str | None = None
    scale: int | None = None


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both sides have.

    Attributes:
        name: Name on both sides.
        kind: Templates that turn its values into texts.
    """

    name: str
    kind: Kind


def kind_of(source: SourceColumn, mirror: ice.IcebergType) -> Kind | None:
    """Return the templates for a column's values on both sides; None if they cannot be compared."""
    if isinstance(mirror, ice.ListType):
        if source.element is None:
            return None
        element = kind_of(SourceColumn(source.element, source.element, scale=source.scale), mirror.element_type)
        # Spark cannot call a Java method for each element of an array.
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
    """Return the columns to compare, and the columns left out, each with the reason.

    Args:
        source: Columns of the source by name.
        mirror: Schema of the mirror.
        columns: Columns of the mirror that hold the source's row.
        exclude: Columns that the stream's file leaves out.
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
            compared.append(ComparedColumn(name, found))
    left += [(name, "the mirror has no such column") for name in source if name not in columns]
    return tuple(compared), tuple(left)


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Expressions over the columns of one side.

    Attributes:
        key_texts: Text of each column of the key.
        leaf: Number of the leaf, an integer.
        row: Digest of the row, an integer below 2**60.
        columns: Digests of the other columns in their order, as one text separated by commas.
    """

    key_texts: tuple[str, ...]
    leaf: str
    row: str
    columns: str


def postgresql_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """Return the digests of a source's rows.

    Args:
        key: Columns of the key.
        columns: All other columns.
    """
    return _digests(
        [(each.kind.postgresql.format(source_name(each.name)), source_name(each.name)) for each in (*key, *columns)],
        len(key),
        _POSTGRESQL_ITEM,
        # A function of PostgreSQL takes at most 100 arguments, which is too few for `concat`.
        lambda parts: f"({' || '.join(parts)})",
        "md5(convert_to({0}, 'UTF8'))",
        "('x' || substr({0}, 1, 15))::bit(60)::bigint",
    )


def spark_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """Return the same digests of a mirror's rows."""
    return _digests(
        [(each.kind.spark.format(quoted_name(each.name)), quoted_name(each.name)) for each in (*key, *columns)],
        len(key),
        _SPARK_ITEM,
        lambda parts: f"concat({', '.join(parts)})",
        "md5({0})",
        "CAST(conv(substr({0}, 1, 15), 16, 10) AS BIGINT)",
    )


# The length of a value's text, then the text; `n` for null. {0} is the text, {1} the value.
_POSTGRESQL_ITEM = "CASE WHEN {1} IS NULL THEN 'n' ELSE concat(char_length({0}), ':', {0}) END"
_SPARK_ITEM = "CASE WHEN {1} IS NULL THEN 'n' ELSE concat(CAST(char_length({0}) AS STRING), ':', {0}) END"


def _digests(
    values: Sequence[tuple[str, str]],
    keys: int,
    item: str,
    joined: Callable[[Sequence[str]], str],
    md5: str,
    number: str,
) -> RowDigests:
    """Return the digests in one dialect of SQL.

    Args:
        values: Text and name of each column, the key's columns first.
        keys: Number of the key's columns.
        item, md5, number: Templates of the dialect.
        joined: Concatenates expressions.
    """
    items = [item.format(text, name) for text, name in values]
    parts = [f"substr({md5.format(each)}, 1, 16)" for each in items[keys:]]
    # Commas between the digests.
    between = [each for part in parts for each in (part, "','")][:-1]
    return RowDigests(
        tuple(text for text, _ in values[:keys]),
        f"mod({number.format(md5.format(joined(items[:keys])))}, {LEAVES})",
        number.format(md5.format(joined(items))),
        joined(between) if between else "''",
    )


def source_name(name: str) -> str:
    """Quote a name for PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def _decimal(scale: int) -> Kind:
    # A cast writes small numbers as 1E-8 if `spark.sql.ansi.enabled` is false.
    return Kind(f"{{0}}::numeric(38,{scale})::text", f"replace(format_number({{0}}, {scale}), ',', '')")


def _list_of(element: Kind) -> Kind:
    item = _POSTGRESQL_ITEM.format(element.postgresql.format("frazil_v"), "frazil_v")
    spark = _SPARK_ITEM.format(element.spark.format("frazil_v"), "frazil_v")
    return Kind(
        f"(SELECT coalesce(string_agg({item}, '' ORDER BY frazil_n), '') "
        "FROM unnest({0}) WITH ORDINALITY AS frazil_u(frazil_v, frazil_n))",
        f"array_join(transform({{0}}, frazil_v -> {spark}), '')",
    )
