"""Previews of records in memory: what Kafka would give, by a stream's file as a dictionary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from jobs.clients.kafka.records import WHOLE, FetchedBlock
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK, Mask
from jobs.records.formats.registry_wire import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from jobs.records.schema.needs import Coordinates
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.preview.preview import asked_parts, preview_stream
from jobs.streaming.preview.record import PreviewedRecord, StreamPreview
from jobs.streaming.preview.tables import tables_as_written
from jobs.tables.commit.stamp.offsets import TopicPartition

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = "id string not null, kind string, amount string, card string"


def spec_of(schema: str = SCHEMA, *, decode: Any = None, table: Any = None, **more: Any) -> StreamSpec:
    """A stream of the topic `payments`."""
    document: dict[str, Any] = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": schema, **(decode or {})},
        "table": {"name": "orders.payments", **(table or {})},
    }
    return StreamSpec.model_validate(document | more)


def encoded(value: Any) -> bytes | None:
    """A record's value: bytes and null as they are, all else as JSON."""
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def block_of(
    values: Sequence[Any],
    *,
    topic: str = "payments",
    partition: int = 0,
    first: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
) -> FetchedBlock:
    """A block of records, with all parts."""
    count = len(values)
    columns: dict[str, Any] = {
        "key": [f"k{first + n}".encode() for n in range(count)],
        "value": [encoded(each) for each in values],
        "headers": [[{"key": key, "value": value} for key, value in headers]] * count,
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": range(first, first + count),
        "timestamp": [AT] * count,
        "timestampType": [0] * count,
    }
    whole = pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in WHOLE], schema=WHOLE)
    records = whole
    for name in (VALUE_SCHEMA_ID, KEY_SCHEMA_ID):
        records = records.append_column(name, pa.nulls(count, pa.binary()))
    return FetchedBlock(TopicPartition(topic, partition), records, lambda rows: whole.take(pa.array(rows, pa.int64())))


def no_new_columns() -> NewColumns:
    raise AssertionError("the file declares its columns")


def previewed(
    spec: StreamSpec, *blocks: FetchedBlock | Sequence[Any], catalog: Catalog | None = None, mask: Mask | None = None
) -> StreamPreview:
    """The preview of some records; values alone are of partition 0, from offset 0 on."""
    tables = tables_as_written(spec, catalog, no_new_columns)
    asked_parts(spec, tables)
    found = [each if isinstance(each, FetchedBlock) else block_of(each) for each in blocks]
    return preview_stream(spec, tables, found, mask=mask or spec.errors.mask or NO_MASK)


def at(offset: int, partition: int = 0, topic: str = "payments") -> Coordinates:
    return Coordinates(topic, partition, offset)


def record(found: StreamPreview, offset: int, partition: int = 0) -> PreviewedRecord:
    return found.records[at(offset, partition)]
