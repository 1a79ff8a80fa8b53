"""Kafka columns of a table: a row's source and Kafka's metadata of its record, under names of the stream's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

# A catalog assigns new ids; until then these only have to differ from those of other columns.
_HEADERS = ice.ListType(
    1_000_001,
    ice.StructType(
        ice.NestedField(1_000_002, "key", ice.StringType(), required=False),
        ice.NestedField(1_000_003, "value", ice.BinaryType(), required=False),
    ),
    element_required=False,
)
TYPES: Mapping[str, ice.IcebergType] = {
    "topic": ice.StringType(),
    "partition": ice.IntegerType(),
    "offset": ice.LongType(),
    "timestamp": ice.TimestamptzType(),
    "timestamp_type": ice.StringType(),
    "key": ice.BinaryType(),
    "headers": _HEADERS,
}
"""The type of each part's column."""
ALL_NAMES: Mapping[str, str] = {part: f"_kafka_{part}" for part in TYPES}
"""The usual name of each part's column."""
PURPOSES: Mapping[str, str] = {
    "topic": "names, with partition and offset, the record of a row: for audits, replays and changes",
    "partition": "keeps the record's partition",
    "offset": "keeps the record's offset",
    "timestamp": "has the record's time: replays and lookups find its file by it",
    "timestamp_type": "shows whether the producer or the broker gave that time",
    "key": "keeps the record's key as bytes",
    "headers": "keeps the record's headers",
}
"""The purpose of each part's column, as the end of a sentence."""


class KafkaColumn(NamedTuple):
    """One column that is filled from Kafka's metadata of a record.

    Attributes:
        part: The part of the metadata that it holds: a key of `TYPES`.
        name: Its name in the table.
    """

    part: str
    name: str

    @property
    def type(self) -> ice.IcebergType:
        """Return the type that it is created with."""
        return TYPES[self.part]

    @property
    def purpose(self) -> str:
        """Return its purpose, as the end of a sentence."""
        return PURPOSES[self.part]


@dataclass(frozen=True, slots=True)
class KafkaColumns:
    """The names of the rows' Kafka columns; None for a part that rows do not have.

    The columns are optional, and the last of a new table, in this order.
    """

    topic: str | None = "_kafka_topic"
    partition: str | None = "_kafka_partition"
    offset: str | None = "_kafka_offset"
    timestamp: str | None = "_kafka_timestamp"
    timestamp_type: str | None = None
    key: str | None = None
    headers: str | None = None

    @property
    def columns(self) -> tuple[KafkaColumn, ...]:
        """Return the rows' Kafka columns, in their order."""
        named = ((part, getattr(self, part)) for part in TYPES)
        return tuple(KafkaColumn(part, name) for part, name in named if name is not None)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the rows' Kafka columns in the table."""
        return frozenset(column.name for column in self.columns)

    @property
    def coordinates(self) -> tuple[str, str, str]:
        """Return the columns that identify a row's record: topic, partition and offset.

        A part that rows do not have gets its usual name, which a table then lacks.
        """
        return self.instant_coordinates[:3]

    @property
    def instant_coordinates(self) -> tuple[str, str, str, str]:
        """Return the coordinates, and the column of the timestamp behind them."""
        return (
            self.topic or ALL_NAMES["topic"],
            self.partition or ALL_NAMES["partition"],
            self.offset or ALL_NAMES["offset"],
            self.timestamp or ALL_NAMES["timestamp"],
        )

    @property
    def left_out(self) -> frozenset[str]:
        """Return the usual names of Kafka's columns that rows could have and do not."""
        return frozenset(ALL_NAMES.values()) - self.names

    @property
    def fetched(self) -> frozenset[str]:
        """Return the parts of a record that these columns need, beyond those that are always fetched."""
        return frozenset(each.part for each in self.columns) & {"timestamp_type", "key", "headers"}

    def locate_rows_of(self, table: Schema) -> bool:
        """Return whether a table has columns for the records of its rows, and for the times when those were sent."""
        wanted = (self.topic, self.partition, self.offset, self.timestamp)
        return None not in wanted and set(wanted) <= set(table.column_names)

    def added_to(self, rows: Schema) -> Schema:
        """Return the schema of a table whose rows have these columns behind their own, with fresh field ids."""
        if not self.columns:
            return rows
        after = rows.highest_field_id + 1
        columns = [
            ice.NestedField(after + n, each.name, each.type, required=False) for n, each in enumerate(self.columns)
        ]
        return assign_fresh_schema_ids(Schema(*rows.fields, *columns))


KAFKA_COLUMNS = KafkaColumns()
NO_KAFKA_COLUMNS = KafkaColumns(None, None, None, None)
