"""Table block of a stream's YAML file: the table that its rows go to."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from jobs.spec.base import SpecModel
from jobs.spec.config_hash import ChangesRows
from jobs.spec.fields import Partition, TableLocation, TableName, TableProperties
from jobs.spec.kafka_columns import KafkaColumnsField, hashed_kafka_columns
from jobs.spec.sort_order import SortText


class Table(SpecModel):
    """Where the rows go.

    Args:
        kafka_columns: Whether rows say where they came from: ``_kafka_topic``, ``_kafka_partition``,
            ``_kafka_offset``, ``_kafka_timestamp``; or names for these columns and others of Kafka's own.
        properties: Iceberg's table properties; applied when the table is created.
        location: Where a new table lies; without it where the catalog puts it.
        sort_by: The sort order of a new table, which Spark's writes follow; frazil writes rows as they come.
    """

    name: Annotated[TableName, ChangesRows()]
    partition_by: Annotated[tuple[Partition, ...], ChangesRows(written=lambda _, value: list(map(str, value)))] = ()
    kafka_columns: Annotated[KafkaColumnsField, ChangesRows(written=hashed_kafka_columns)] = True
    properties: TableProperties = Field(default_factory=dict)
    location: TableLocation | None = None
    sort_by: tuple[SortText, ...] = ()
