"""Control events of the Iceberg sink, as its releases encode them."""

from __future__ import annotations

import copy
import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import fastavro

_UUID = {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16}
_BOUNDS = {
    "type": "array",
    "logicalType": "map",
    "items": {
        "type": "record",
        "name": "k126_v127",
        "namespace": "",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
    },
}
_FILE = {
    "type": "record",
    "name": "GenericDataFile",
    "namespace": "org.apache.iceberg",
    "fields": [
        {"name": "content", "type": ["null", "int"]},
        {"name": "file_path", "type": "string"},
        {"name": "file_format", "type": "string"},
        {"name": "spec_id", "type": ["null", "int"]},
        {
            "name": "partition",
            "type": {
                "type": "record",
                "name": "PartitionData",
                "fields": [{"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]}],
            },
        },
        {"name": "record_count", "type": "long"},
        {"name": "file_size_in_bytes", "type": "long"},
        {"name": "lower_bounds", "type": ["null", _BOUNDS]},
    ],
}
_FILES = ["null", {"type": "array", "items": _FILE}]
_MORE_FILES = ["null", {"type": "array", "items": "org.apache.iceberg.GenericDataFile"}]
_PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "DataWritten": [
        {"name": "commit_id", "type": _UUID},
        {
            "name": "table_reference",
            "type": {
                "type": "record",
                "name": "TableReference",
                "fields": [
                    {"name": "catalog", "type": "string"},
                    {"name": "namespace", "type": {"type": "array", "items": "string"}},
                    {"name": "name", "type": "string"},
                    {"name": "table_uuid", "type": ["null", "uuid_fixed"]},
                ],
            },
        },
        {"name": "data_files", "type": _FILES},
        {"name": "delete_files", "type": _MORE_FILES},
    ],
    "DataComplete": [
        {"name": "commit_id", "type": _UUID},
        {
            "name": "assignments",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "TopicPartitionOffset",
                        "fields": [
                            {"name": "topic", "type": "string"},
                            {"name": "partition", "type": "int"},
                            {"name": "offset", "type": ["null", "long"]},
                            {"name": "timestamp", "type": ["null", "long"]},
                        ],
                    },
                },
            ],
        },
    ],
    # Tabular's releases before they took Apache's events.
    "CommitResponsePayload": [
        {"name": "commitId", "type": _UUID},
        {
            "name": "tableName",
            "type": {
                "type": "record",
                "name": "TableName",
                "fields": [
                    {"name": "namespace", "type": {"type": "array", "items": "string"}},
                    {"name": "name", "type": "string"},
                ],
            },
        },
        {"name": "dataFiles", "type": _FILES},
        {"name": "deleteFiles", "type": _MORE_FILES},
    ],
}
FILE: dict[str, Any] = {
    "content": 0,
    "file_path": "s3://b/1.parquet",
    "file_format": "PARQUET",
    "spec_id": 0,
    "partition": {"day": 20_000},
    "record_count": 3,
    "file_size_in_bytes": 100,
    "lower_bounds": [{"key": 1, "value": b"\x01"}],
}
"""Fields of a data file."""
PLACE: dict[str, Any] = {"topic": "orders", "partition": 0, "offset": 1, "timestamp": None}
"""A worker's answer for one source partition."""


def event_schema(payload: str) -> dict[str, Any]:
    """Schema of an event.

    Args:
        payload: `DataWritten`, `DataComplete`, or `CommitResponsePayload`.
    """
    return copy.deepcopy({"type": "record", "name": payload, "fields": _PAYLOADS[payload]})


def written_payload(
    files: Sequence[dict[str, Any]], *, table: str = "orders", table_uuid: uuid.UUID | None = None
) -> dict[str, Any]:
    """Payload of a `DATA_WRITTEN`."""
    return {
        "commit_id": uuid.uuid4(),
        "table_reference": {
            "catalog": "lake",
            "namespace": ["tests"],
            "name": table,
            "table_uuid": table_uuid.bytes if table_uuid else None,
        },
        "data_files": list(files),
        "delete_files": None,
    }


def encoded(
    payload: dict[str, Any], number: int, value: dict[str, Any], *, group: str = "group_id", sink: str = "connect-sink"
) -> bytes:
    """An event as the sink writes it: Iceberg's mark, the schema and the value.

    Args:
        payload: Schema of the payload, see `event_schema`.
        number: Type of the event.
        value: The payload.
        group: Name of the field with the sink's group.
    """
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "type", "type": "int"},
            {"name": group, "type": "string"},
            {"name": "payload", "type": payload},
        ],
    }
    text = json.dumps(schema).encode()
    plain = {key: each.bytes if isinstance(each, uuid.UUID) else each for key, each in value.items()}
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(copy.deepcopy(schema)), {"type": number, group: sink, "payload": plain}
    )
    return b"\xc2\x01" + len(text).to_bytes(2, "big") + text + out.getvalue()
