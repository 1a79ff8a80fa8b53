"""Converters by connector class: which function converts which connectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from jobs.config.documents.connect_keys import KeyOwner
from jobs.migration.conversion.debezium_topics import DEBEZIUM_SOURCES
from jobs.migration.conversion.draft import Draft

S3_CLASSES = r"(io\.confluent\.connect\.s3\.)?S3SinkConnector|S3Sink"
AIVEN_S3_CLASSES = (
    r"io\.aiven\.kafka\.connect\.s3\.(AivenKafkaConnect)?S3SinkConnector|AivenKafkaConnectS3SinkConnector"
)
HDFS_CLASSES = r"(io\.confluent\.connect\.hdfs3?\.)?Hdfs3?SinkConnector|Hdfs3?Sink"
JDBC_CLASSES = (
    r"((io\.confluent\.connect|io\.aiven\.connect|io\.debezium\.connector)\.jdbc\.)?JdbcSinkConnector|JdbcSink"
)
Convert = Callable[[Draft], None]
"""Fills a draft. It answers each key that it knows by `draft.keys`; the table of Connect's keys answers the others."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Converter of a family of connectors.

    Attributes:
        family: Name of the family in the report, such as `iceberg-sink`.
        classes: Regular expression that a connector's whole class matches.
        function: Module within this package and function, as `iceberg_sink:convert_iceberg_sink`.
        owners: Whose keys it reads beside those of all connectors, in the table of Connect's keys.
    """

    family: str
    classes: str
    function: str
    owners: tuple[KeyOwner, ...] = ()

    def load(self) -> Convert:
        """The function, imported when it is needed."""
        module, name = self.function.split(":")
        return getattr(import_module(f"{__package__}.{module}"), name)


CONVERTERS = (
    Converter(
        "iceberg-sink",
        r"([\w.]+\.)?iceberg\.(kafka\.)?connect\.IcebergSinkConnector|IcebergSinkConnector",
        "iceberg.iceberg_sink:convert_iceberg_sink",
    ),
    Converter(
        "iceberg-sink",
        r"(com\.getindata\.kafka\.connect\.iceberg\.sink\.)?IcebergSink",
        "iceberg.getindata_sink:convert_getindata_sink",
        ("getindata",),
    ),
    Converter("s3-sink", S3_CLASSES, "file_sinks:convert_storage_sink", ("files",)),
    Converter("s3-sink", AIVEN_S3_CLASSES, "file_sinks:convert_aiven_s3_sink", ("aiven-files",)),
    Converter("hdfs-sink", HDFS_CLASSES, "file_sinks:convert_storage_sink", ("files",)),
    Converter("jdbc-sink", JDBC_CLASSES, "jdbc_sink:convert_jdbc_sink", ("jdbc",)),
    Converter("debezium-source", DEBEZIUM_SOURCES, "debezium_source:convert_debezium_source", ("debezium",)),
)
"""Converters; the first whose classes match counts."""


def converter_of(connector_class: str) -> Converter | None:
    """Converter of a connector class; None if frazil knows none."""
    return next((one for one in CONVERTERS if re.fullmatch(one.classes, connector_class.strip())), None)
