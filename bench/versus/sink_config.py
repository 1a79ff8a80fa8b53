"""Configuration of the Apache Iceberg sink and its Connect worker, as fast as they get: docs/reference/figures.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.versus.deployment import TABLE
from bench.versus.formats import converter_properties
from jobs.clients.spark.catalog_conf import catalog_conf
from jobs.config.services.catalog import CatalogSettings

CONSUMER = {
    "max.poll.records": "5000",
    "fetch.min.bytes": "262144",
    "fetch.max.wait.ms": "100",
    "max.partition.fetch.bytes": "8388608",
    "fetch.max.bytes": "67108864",
}
"""Of the sink's consumer: more at once than by default, where 500 records make a call."""

_KAFKA = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Settings of the sink.

    Args:
        topic: Topic that it reads, from the beginning.
        tasks: `tasks.max`.
        commit_ms: `iceberg.control.commit.interval-ms`.
        kafka_columns: Whether the transform `InsertField` gives each row the four columns of frazil's.
        consumer: Over `CONSUMER`.
        worker: Over the worker's own settings, such as `offset.flush.interval.ms`.
        converter: The worker's properties of the converter of values.
        route_field: The field that names each record's table, which the sink makes; empty: all go to the one table.
        table_properties: Properties of tables that the sink makes.
    """

    topic: str
    tasks: int = 2
    commit_ms: int = 10_000
    kafka_columns: bool = True
    consumer: Mapping[str, str] = field(default_factory=dict)
    worker: Mapping[str, str] = field(default_factory=dict)
    converter: Mapping[str, str] = field(default_factory=lambda: converter_properties("json", None))
    route_field: str = ""
    table_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, str]:
        """The connector's properties that say where records go."""
        if not self.route_field:
            return {"iceberg.tables": TABLE}
        return {
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": self.route_field,
            "iceberg.tables.auto-create-enabled": "true",
            **{f"iceberg.tables.auto-create-props.{key}": value for key, value in self.table_properties.items()},
        }


def worker_properties(sink: SinkConfig) -> dict[str, str]:
    """Settings of a standalone worker, beside those that all workers share.

    Args:
        sink: Configuration of the sink.
    """
    return {
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        **sink.converter,
        # For so long an idle task sits in a poll and answers no commit, which waits for it; the default is 60 s.
        "offset.flush.interval.ms": "1000",
        # All is on the class path, and all of it names its plugins.
        "plugin.discovery": "service_load",
        **{f"consumer.{key}": value for key, value in {**CONSUMER, **sink.consumer}.items()},
        **sink.worker,
    }


def sink_properties(sink: SinkConfig, control_topic: str, catalog: CatalogSettings) -> dict[str, str]:
    """Properties of the connector, without its name.

    Args:
        sink: Configuration of the sink.
        control_topic: Name of the existing control topic.
        catalog: Settings of the table's catalog.
    """
    kafka = {
        "transforms": "kafka",
        "transforms.kafka.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        **{f"transforms.kafka.{each}.field": f"_kafka_{each}" for each in _KAFKA},
    }
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(sink.tasks),
        "topics": sink.topic,
        **(kafka if sink.kafka_columns else {}),
        **sink.tables,
        "iceberg.control.topic": control_topic,
        "iceberg.control.commit.interval-ms": str(sink.commit_ms),
        "iceberg.catalog": catalog.name,
        **{f"iceberg.catalog.{key}": value for key, value in catalog_conf(catalog.name, catalog.revealed()).items()},
        # Without Hadoop's checksum file beside each file, which costs time.
        "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
