"""Rows of the table that is compared: which of its columns hold coordinates, and the rows of some offsets."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    LessThan,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.config.stream.models import StreamSpec
from jobs.migration.comparison.staged_rows import PLACE
from jobs.migration.comparison.table_facts import equality_deletes
from jobs.tables.commit.stamp.offsets import Ranges

MOST_ROWS = 20_000_000
"""Rows of the table that are staged, where its rows do not name their offsets."""
# Of frazil and `InsertField` by the docs, and of the sink's own transform `KafkaMetadataTransform`, flat and nested.
_USUAL = ("_kafka_{}", "_kafka_metadata_{}", "_kafka_metadata.{}")


@dataclass(frozen=True, slots=True)
class CoordinateColumns:
    """Columns of a table that say which record a row is of.

    Attributes:
        topic: Column of the topic, dotted below a struct; None if there is none and the stream reads one topic.
        partition: Column of the partition.
        offset: Column of the offset.
    """

    topic: str | None
    partition: str
    offset: str

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the table's top that hold nothing but coordinates."""
        named = (self.topic, self.partition, self.offset)
        return frozenset(each for each in named if each is not None and "." not in each)


def parse_coordinates(text: str) -> dict[str, str]:
    """The columns of `topic=a,partition=b,offset=c`, by what they hold.

    Raises:
        FrazilError: It is no such text.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = (each.strip() for each in part.partition("="))
        if name not in PLACE or not equals or not column or name in found:
            raise FrazilError(
                f"--coordinates '{text}' names no columns of a table.",
                fix="write it as topic=src_topic,partition=src_partition,offset=src_offset",
            )
        found[name] = column
    return found


def find_coordinates(
    table: Schema, name: str, spec: StreamSpec, topics: int, asked: Mapping[str, str]
) -> CoordinateColumns | None:
    """The columns of a table that hold coordinates; None if it has none.

    Args:
        name: Name of the table.
        topics: How many topics the stream reads.
        asked: What the command line names, see `parse_coordinates`.

    Raises:
        FrazilError: It lacks a column that is named, or what is named does not say which record a row is of.
    """
    if asked:
        missing = [each for each in asked.values() if _find(table, each) is None]
        if missing:
            raise FrazilError(f"table {name} has no column {', '.join(missing)}.", fix="correct --coordinates")
        lacking = [each for each in PLACE if each not in asked and (each != "topic" or topics > 1)]
        if lacking:
            raise FrazilError(
                f"--coordinates lacks {' and '.join(lacking)}: rows are matched by topic, partition and offset.",
                fix="name a column for each, or omit --coordinates and use --key",
            )
        return CoordinateColumns(asked.get("topic"), asked["partition"], asked["offset"])
    own = dict(zip(PLACE, spec.kafka_columns.coordinates, strict=True))
    for names in (own, *({each: form.format(each) for each in PLACE} for form in _USUAL)):
        if all(_find(table, names[each]) is not None for each in ("partition", "offset")):
            topic = names["topic"] if _find(table, names["topic"]) is not None else None
            if topic is not None or topics == 1:
                return CoordinateColumns(topic, names["partition"], names["offset"])
    return None


def refuse_equality_deletes(table: Table, name: str) -> None:
    """Check that every row that a reader sees can be read here.

    Raises:
        FrazilError: The table has equality deletes, which PyIceberg cannot apply.
    """
    if count := equality_deletes(table.current_snapshot()):
        raise FrazilError(
            f"table {name} has {count:,} equality deletes, as sinks with upserts write them, and frazil cannot find "
            "the rows that they delete. Nothing was changed.",
            fix=f"apply them with Spark: CALL system.rewrite_data_files(table => '{spark_name(name)}', options => "
            "map('delete-file-threshold', '1')), then run this again",
        )


def rows_of_offsets(ranges: Ranges, columns: CoordinateColumns, schema: Schema) -> BooleanExpression:
    """Filter of the rows of some offsets; of all rows if their columns are of other types or in a struct."""
    plain = {"partition": (IntegerType, LongType), "offset": (IntegerType, LongType), "topic": (StringType,)}
    for part, types in plain.items():
        name: str | None = getattr(columns, part)
        if name is not None and ("." in name or not isinstance(schema.find_field(name).field_type, types)):
            return AlwaysTrue()
    found: BooleanExpression = AlwaysFalse()
    for partition, range_ in ranges.items():
        one: BooleanExpression = And(
            EqualTo(columns.partition, partition.partition),
            GreaterThanOrEqual(columns.offset, range_.start),
            LessThan(columns.offset, range_.end),
        )
        found = Or(found, one if columns.topic is None else And(EqualTo(columns.topic, partition.topic), one))
    return found


def read_rows(
    table: Table, ranges: Ranges, columns: CoordinateColumns | None
) -> Iterator[tuple[pa.RecordBatch, dict[str, pa.Array] | None]]:
    """Rows of a table batch by batch, each with topic, partition and offset if the table has them.

    Args:
        ranges: Offsets whose rows are read, if they have coordinates; those without coordinates are left out.
        columns: Where coordinates stand; None reads all rows.

    Raises:
        FrazilError: There are more rows than can be compared without coordinates.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    where = AlwaysTrue() if columns is None else rows_of_offsets(ranges, columns, table.schema())
    read = 0
    for batch in table.scan(row_filter=where, snapshot_id=snapshot.snapshot_id).to_arrow_batch_reader():
        if columns is None:
            read += batch.num_rows
            if read > MOST_ROWS:
                raise FrazilError(
                    f"table {'.'.join(table.name())} has more than {MOST_ROWS:,} rows, and they do not name their "
                    "offsets.",
                    fix="name the columns that do by --coordinates, or compare a smaller table",
                )
            yield batch, None
            continue
        place = _places_of(batch, columns, ranges)
        wanted = _within(place, ranges)
        if pc.sum(wanted).as_py():
            yield batch.filter(wanted), {name: each.filter(wanted) for name, each in place.items()}


def _places_of(batch: pa.RecordBatch, columns: CoordinateColumns, ranges: Ranges) -> dict[str, pa.Array]:
    topic = next(iter(ranges)).topic if ranges else ""
    return {
        "topic": pa.array([topic] * batch.num_rows, pa.string())
        if columns.topic is None
        else _below(batch, columns.topic).cast(pa.string()),
        "partition": _below(batch, columns.partition).cast(pa.int64()),
        "offset": _below(batch, columns.offset).cast(pa.int64()),
    }


def _within(place: Mapping[str, pa.Array], ranges: Ranges) -> pa.Array:
    """Mask of the rows whose offsets are among the ranges."""
    found = pa.array([False] * len(place["offset"]))
    for partition, range_ in ranges.items():
        one = pc.and_(pc.equal(place["topic"], partition.topic), pc.equal(place["partition"], partition.partition))
        bounds = pc.and_(pc.greater_equal(place["offset"], range_.start), pc.less(place["offset"], range_.end))
        found = pc.or_(found, pc.fill_null(pc.and_(one, bounds), False))
    return found


def _below(batch: pa.RecordBatch, path: str) -> pa.Array:
    if path in batch.schema.names:
        return batch.column(path)
    first, *rest = path.split(".")
    return pc.struct_field(batch.column(first), rest)


def _find(schema: Schema, name: str) -> object | None:
    return name if name in schema.column_names else None
