"""Kafka columns of a table: where a row came from and what Kafka keeps of its record, under names of one's choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

# A catalog numbers the fields anew; until then these ids only have to differ from those of other columns.
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
    "topic": "says with partition and offset which record a row is of: for audits, replays and changes",
    "partition": "keeps the record's partition",
    "offset": "keeps the record's offset",
    "timestamp": "says when the record was sent: replays and lookups find its file by it",
    "timestamp_type": "says whether the producer or the broker gave that time",
    "key": "keeps the record's key as bytes",
    "headers": "keeps the record's headers",
}
"""What each part's column is for, as the end of a sentence."""


class KafkaColumn(NamedTuple):
    """One column that is filled from what Kafka keeps of a record.

    Attributes:
        part: What it holds: a key of `TYPES`.
        name: What the table calls it.
    """

    part: str
    name: str

    @property
    def type(self) -> ice.IcebergType:
        """The type that it is created with."""
        return TYPES[self.part]

    @property
    def purpose(self) -> str:
        """What it is for, as the end of a sentence."""
        return PURPOSES[self.part]


@dataclass(frozen=True, slots=True)
class KafkaColumns:
    """The names of the columns that rows have of Kafka's own; None for what rows do not have.

    They are optional columns, the last of a new table, in this order.
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
        """Those that rows have, in their order."""
        named = ((part, getattr(self, part)) for part in TYPES)
        return tuple(KafkaColumn(part, name) for part, name in named if name is not None)

    @property
    def names(self) -> frozenset[str]:
        """What the table calls those that rows have."""
        return frozenset(column.name for column in self.columns)

    @property
    def coordinates(self) -> tuple[str, str, str]:
        """The columns that say which record a row is of: topic, partition and offset.

        What rows do not have goes by its usual name, under which a table lacks it.
        """
        return self.instant_coordinates[:3]

    @property
    def instant_coordinates(self) -> tuple[str, str, str, str]:
        """The coordinates, and the column of the timestamp behind them."""
        return (
            self.topic or ALL_NAMES["topic"],
            self.partition or ALL_NAMES["partition"],
            self.offset or ALL_NAMES["offset"],
            self.timestamp or ALL_NAMES["timestamp"],
        )

    @property
    def left_out(self) -> frozenset[str]:
        """The usual names of Kafka's columns that rows could have and do not."""
        return frozenset(ALL_NAMES.values()) - self.names

    @property
    def fetched(self) -> frozenset[str]:
        """What has to be fetched of a record for them, beyond what every record is fetched with."""
        return frozenset(each.part for each in self.columns) & {"timestamp_type", "key", "headers"}

    def locate_rows_of(self, table: Schema) -> bool:
        """Whether the rows of a table say which records they are of, and when those were sent."""
        wanted = (self.topic, self.partition, self.offset, self.timestamp)
        return None not in wanted and set(wanted) <= set(table.column_names)

    def added_to(self, rows: Schema) -> Schema:
        """The schema of a table whose rows have these columns behind their own, with fresh field ids."""
        if not self.columns:
            return rows
        after = rows.highest_field_id + 1
        columns = [
            ice.NestedField(after + n, each.name, each.type, required=False) for n, each in enumerate(self.columns)
        ]
        return assign_fresh_schema_ids(Schema(*rows.fields, *columns))


KAFKA_COLUMNS = KafkaColumns()
NO_KAFKA_COLUMNS = KafkaColumns(None, None, None, None)
