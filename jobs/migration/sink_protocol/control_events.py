"""Control events of the Iceberg sink: which files its workers announce, and how far they have read.

Apache's sink and Tabular's write the same bytes: a mark, the Avro schema as JSON, and the value. Field names differ
between the generations.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jobs.base.errors import FrazilError
from jobs.migration.sink_protocol.avro_values import AvroReader
from jobs.tables.commit.stamp.offsets import TopicPartition

# Iceberg: org.apache.iceberg.avro.AvroEncoderUtil.
_MARK = b"\xc2\x01"
_LENGTH = 2
# org.apache.iceberg.connect.events.PayloadType; Tabular numbers its own alike.
_DATA_WRITTEN = 1
_DATA_COMPLETE = 2


class UnreadableEventError(FrazilError):
    """A record of the control topic is no event of the Iceberg sink, or one of an unknown form.

    Safe: Nothing was changed.
    Next: name the sink's control topic with `--control-topic`
    """


@dataclass(frozen=True, slots=True)
class Announcement:
    """Files that a worker has written for one table (`DATA_WRITTEN`).

    Attributes:
        table: Full name of the table, such as `orders.payments`.
        table_uuid: UUID of the table when the files were written; None if the sink's release leaves it out.
        data_files: Descriptors of the data files, field by field as Iceberg names them.
        delete_files: Number of delete files, which upserts of Tabular's sink write.
    """

    table: str
    table_uuid: str | None
    data_files: tuple[Mapping[str, Any], ...]
    delete_files: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a worker has read its partitions (`DATA_COMPLETE`).

    Attributes:
        offsets: Next offset of each partition that it read records of since its last answer.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlEvent:
    """One record of the control topic.

    Attributes:
        partition: Partition of the control topic.
        offset: Offset there.
        group: Sink that wrote it, by its consumer group.
        payload: None for events without files and offsets.
    """

    partition: int
    offset: int
    group: str
    payload: Announcement | Progress | None


def decode_event(value: bytes, partition: int, offset: int) -> ControlEvent:
    """Decode one record of a control topic.

    Raises:
        UnreadableEventError: It is no control event, or has a form that no known release of the sink writes.
    """
    try:
        if value[:2] != _MARK:
            raise ValueError("it does not begin with Iceberg's mark of an Avro value")
        length = int.from_bytes(value[2 : 2 + _LENGTH], "big")
        schema, body = value[2 + _LENGTH : 2 + _LENGTH + length], value[2 + _LENGTH + length :]
        event = AvroReader(body).read_whole(_parse_schema(schema))
        payload = event["payload"]
        group = _first_field(event, "group_id", "groupId")
        read = {_DATA_WRITTEN: _announcement, _DATA_COMPLETE: _progress}.get(event["type"])
        return ControlEvent(partition, offset, group, read(payload) if read else None)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as problem:
        raise UnreadableEventError(
            f"control topic, partition {partition}, offset {offset}: the record is no event of the Iceberg sink "
            f"({type(problem).__name__}: {problem}).",
            fix="name the sink's own control topic with --control-topic",
        ) from problem


@lru_cache(maxsize=256)
def _parse_schema(text: bytes) -> Any:
    return json.loads(text)


def _first_field(record: Mapping[str, Any], *names: str) -> Any:
    field_name = next((name for name in names if name in record), None)
    if field_name is None:
        raise KeyError(names[0])
    return record[field_name]


def _announcement(payload: Mapping[str, Any]) -> Announcement:
    table = _first_field(payload, "table_reference", "tableReference", "tableName")
    identity = table.get("table_uuid")
    return Announcement(
        ".".join([*table["namespace"], table["name"]]),
        str(uuid.UUID(bytes=identity)) if identity else None,
        tuple(_first_field(payload, "data_files", "dataFiles") or ()),
        len(_first_field(payload, "delete_files", "deleteFiles") or ()),
    )


def _progress(payload: Mapping[str, Any]) -> Progress:
    assignments = payload["assignments"] or ()
    offsets = {
        TopicPartition(assignment["topic"], assignment["partition"]): assignment["offset"]
        for assignment in assignments
        if assignment["offset"] is not None
    }
    return Progress(offsets)
