"""Column statistics of a data file, from its Parquet footer, in Iceberg's form.

Readers skip files by these statistics, so a wrong bound loses rows: whatever is not certain is left out. PyIceberg's
own function is not used for three reasons. It keeps the bounds of a column even if one row group has none (Arrow writes
none for values past 4 KiB). It fails on timestamps and dates past the year 9999, and on text whose upper bound would be
a surrogate. And it makes no bounds for fields of structs, by which Spark prunes as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.parquet as pq
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
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

_SCALARS: dict[type[IcebergType], str] = {
    BooleanType: "<?",
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimeType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
    FloatType: "<f",
    DoubleType: "<d",
}
# No uuid, see `jobs.tables.write.table_creation`.
_RAW = (StringType, BinaryType, FixedType)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


@dataclass(frozen=True, slots=True)
class ColumnMode:
    """Statistics to keep of a column: value and null counts, bounds, and the length to which bounds are cut."""

    counts: bool
    bounds: bool
    length: int | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A primitive column of a file, for its statistics.

    Args:
        path: Path in the Parquet schema, such as `tags.list.element`.
        repeated: Whether it is in a list or a map, where bounds mean nothing to a reader.
        nested: Whether it is in any other type.
    """

    field_id: int
    kind: IcebergType
    path: str
    repeated: bool
    nested: bool


@dataclass(slots=True)
class ColumnStatistics:
    """Counts by field id, bounds in Iceberg's single-value form, and the offsets at which row groups start."""

    record_count: int
    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)


def leaves(file_schema: Schema) -> list[Leaf]:
    """The primitive columns of a file in the order of its Parquet schema."""
    return [leaf for column in file_schema.fields for leaf in _leaves(column, column.name, False, False)]


def _leaves(column: NestedField, path: str, repeated: bool, nested: bool) -> Iterator[Leaf]:
    kind = column.field_type
    if isinstance(kind, ListType):
        yield from _leaves(kind.element_field, f"{path}.list.element", True, True)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.key_field, f"{path}.key_value.key", True, True)
        yield from _leaves(kind.value_field, f"{path}.key_value.value", True, True)
    elif kind.is_struct:
        for child in kind.fields:  # pyright: ignore[reportAttributeAccessIssue]
            yield from _leaves(child, f"{path}.{child.name}", repeated, True)
    else:
        yield Leaf(column.field_id, kind, path, repeated, nested)


def statistics_of(
    footer: pq.FileMetaData, columns: Sequence[Leaf], modes: Mapping[int, ColumnMode]
) -> ColumnStatistics:
    """Read the statistics of a finished file.

    Raises:
        ValueError: The file has other columns than the schema.
    """
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    if paths != [leaf.path for leaf in columns]:
        raise ValueError(f"the file has the columns {paths}, the schema {[leaf.path for leaf in columns]}")
    result = ColumnStatistics(record_count=footer.num_rows)
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    for group in groups:
        first = group.column(0)
        starts = [first.data_page_offset, first.dictionary_page_offset]
        result.split_offsets.append(min(start for start in starts if start is not None))
    for position, leaf in enumerate(columns):
        chunks = [group.column(position) for group in groups]
        result.column_sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        mode = modes[leaf.field_id]
        if mode.counts:
            _add_column(result, leaf, mode, chunks)
    return result


def _add_column(
    result: ColumnStatistics, leaf: Leaf, mode: ColumnMode, chunks: Sequence[pq.ColumnChunkMetaData]
) -> None:
    result.value_counts[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
    found = [chunk.statistics for chunk in chunks]
    if any(one is None or not one.has_null_count for one in found):
        return
    result.null_value_counts[leaf.field_id] = sum(one.null_count for one in found)
    if not mode.bounds or leaf.repeated:
        return
    # A row group with only nulls has no bounds and needs none. Any other one without bounds makes the file's unknown.
    with_values = [
        one for one, chunk in zip(found, chunks, strict=True) if one.has_min_max or one.null_count < chunk.num_values
    ]
    if not with_values or not all(one.has_min_max for one in with_values):
        return
    lower = lower_bound(leaf.kind, min(_comparable(leaf.kind, one.min_raw) for one in with_values), mode.length)
    upper = upper_bound(leaf.kind, max(_comparable(leaf.kind, one.max_raw) for one in with_values), mode.length)
    if lower is not None:
        result.lower_bounds[leaf.field_id] = lower
    if upper is not None:
        result.upper_bounds[leaf.field_id] = upper


def _comparable(kind: IcebergType, raw: object) -> float | bytes:
    """A raw Parquet statistic as a value that sorts as Iceberg sorts: UTF-8 bytes sort as code points do."""
    if isinstance(raw, str):
        return raw.encode()
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    if isinstance(raw, int | float | bytes):
        return raw
    raise TypeError(f"Parquet gives {type(raw).__name__} as a bound of {kind}")


def lower_bound(kind: IcebergType, least: float | bytes, length: int | None) -> bytes | None:
    """The least value in Iceberg's single-value form, text cut to `length` characters, binary and fixed to bytes."""
    if isinstance(kind, _RAW) and isinstance(least, bytes) and length is not None:
        return least.decode()[:length].encode() if isinstance(kind, StringType) else least[:length]
    return _serialised(kind, least)


def upper_bound(kind: IcebergType, greatest: float | bytes, length: int | None) -> bytes | None:
    """As `lower_bound`, but a value that is cut is raised to the next one of its length; None if there is none."""
    if not isinstance(kind, _RAW) or not isinstance(greatest, bytes) or length is None:
        return _serialised(kind, greatest)
    if not isinstance(kind, StringType):
        return greatest if len(greatest) <= length else _raised_bytes(greatest[:length])
    text = greatest.decode()
    return greatest if len(text) <= length else _raised_text(text[:length])


def _raised_bytes(value: bytes) -> bytes | None:
    stripped = value.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def _raised_text(value: str) -> bytes | None:
    stripped = value.rstrip(chr(_LAST_CODE_POINT))
    if not stripped:
        return None
    following = ord(stripped[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return (stripped[:-1] + chr(following)).encode()


def _serialised(kind: IcebergType, value: float | bytes) -> bytes | None:
    """Iceberg's single-value serialisation (appendix D of its specification)."""
    if isinstance(kind, DecimalType) and isinstance(value, int):
        magnitude = value if value >= 0 else ~value
        return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(kind, _RAW) and isinstance(value, bytes):
        return value
    layout = _SCALARS.get(type(kind))
    return None if layout is None else struct.pack(layout, value)
