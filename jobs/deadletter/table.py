"""The table that keeps records which could not be landed: their bytes, where they came from and why they failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from jobs.deadletter.masking import masked
from jobs.formats.decoder import Failure
from jobs.spec.mask import NO_MASK, Mask
from jobs.spec.partitioning import PartitionExpr

STATES = ("new", "replayed", "failed_again", "parked", "dismissed")
# What a letter lives through; the stream that writes it leaves them null, which reads as new and as no attempt.
LETTER_LIFE = (
    NestedField(21, "state", StringType(), False, "new, replayed, failed_again, parked or dismissed; null is new."),
    NestedField(22, "attempts", IntegerType(), False, "Replays that tried it."),
    NestedField(23, "state_at", TimestamptzType(), False, "When the state was set."),
    NestedField(24, "replay", StringType(), False, "Id of the replay that set it."),
    NestedField(25, "run_id", StringType(), False, "Dagster's run of that replay."),
    NestedField(26, "replay_snapshot_id", LongType(), False, "Snapshot of the stream's table that holds its row."),
    NestedField(27, "replay_error_class", StringType(), False, "The reason of the last replay that failed."),
    NestedField(28, "replay_message", StringType(), False, "That reason in words."),
    NestedField(29, "correction", StringType(), False, "YAML that the spec was corrected with for the replay."),
    NestedField(30, "changed_by", StringType(), False, "Who set the state."),
    NestedField(31, "note", StringType(), False, "Why, where a person set it."),
    NestedField(32, "masked", StringType(), False, "What is not kept: value, field:path, key, headers."),
)
DEAD_LETTER_SCHEMA = Schema(
    NestedField(1, "stream", StringType(), required=True, doc="Id of the stream."),
    NestedField(2, "topic", StringType(), required=True),
    NestedField(3, "partition", IntegerType(), required=True),
    NestedField(4, "offset", LongType(), required=True),
    NestedField(5, "timestamp", TimestamptzType(), doc="The record's timestamp in Kafka."),
    NestedField(6, "timestamp_type", StringType(), doc="CreateTime or LogAppendTime."),
    NestedField(7, "key", BinaryType(), doc="The record's key, byte for byte."),
    NestedField(8, "value", BinaryType(), doc="The record's value, byte for byte."),
    NestedField(
        9,
        "headers",
        ListType(18, StructType(NestedField(19, "key", StringType()), NestedField(20, "value", BinaryType())), False),
    ),
    NestedField(10, "stage", StringType(), required=True, doc="The stage that failed first."),
    NestedField(11, "error_class", StringType(), required=True, doc="Stable name of the reason."),
    NestedField(12, "message", StringType(), doc="The reason in words."),
    NestedField(13, "field", StringType(), doc="Where in the record, such as $.a.b[2]."),
    NestedField(14, "config_hash", StringType(), doc="Of the configuration that the record failed under."),
    NestedField(15, "batch_id", LongType()),
    NestedField(16, "epoch", LongType()),
    NestedField(17, "first_seen", TimestamptzType(), required=True, doc="When the batch that met it was made."),
    *LETTER_LIFE,
)
DEAD_LETTER_PARTITIONS = (PartitionExpr("day", "first_seen", None),)

_HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
_INSTANT = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", _INSTANT),
        pa.field("timestamp_type", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("error_class", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("field", pa.string()),
        pa.field("config_hash", pa.string()),
        pa.field("batch_id", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("first_seen", _INSTANT, nullable=False),
    ]
)
LIFE_ARROW = pa.schema(
    [
        pa.field("state", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("state_at", _INSTANT),
        pa.field("replay", pa.string()),
        pa.field("run_id", pa.string()),
        pa.field("replay_snapshot_id", pa.int64()),
        pa.field("replay_error_class", pa.string()),
        pa.field("replay_message", pa.string()),
        pa.field("correction", pa.string()),
        pa.field("changed_by", pa.string()),
        pa.field("note", pa.string()),
    ]
)
_NO_COLUMNS = Schema()
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def dead_letter_rows(
    records: pa.RecordBatch,
    failures: Sequence[Failure],
    *,
    stream: str,
    config_hash: str,
    batch_id: int | None,
    epoch: int | None,
    first_seen: datetime,
    mask: Mask = NO_MASK,
    rows: Schema = _NO_COLUMNS,
) -> pa.RecordBatch:
    """Failed records as rows of the dead-letter table.

    Args:
        records: As Kafka gave them: key, value, headers, topic, partition, offset, timestamp, timestampType. Only
            topic, partition and offset must be there.
        failures: Why each of them failed, in their order.
        stream: Id of the stream.
        config_hash: Of the configuration that the records failed under.
        batch_id: Spark's batch; None for records that no batch of the stream's driver has met.
        epoch: The driver's epoch; likewise.
        first_seen: An instant that is the same in each attempt at the batch, so that a replay makes the same rows.
        mask: What is not kept of the records.
        rows: The schema of the rows that the stream decodes.

    Returns:
        A row for each record, in the columns of `ARROW_SCHEMA`; with a column `masked` if something is not kept.

    Raises:
        ValueError: `first_seen` has no zone.
    """
    if first_seen.tzinfo is None:
        raise ValueError("first_seen must have a zone")
    parts: list[str | None] = []
    if mask != NO_MASK:
        hidden = masked(records, failures, mask, rows)
        records, failures, parts = hidden.records, hidden.failures, hidden.parts
    count = records.num_rows

    def from_kafka(name: str, kind: pa.DataType) -> pa.Array:
        index = records.schema.get_field_index(name)
        return pa.nulls(count, kind) if index < 0 else _as(records.column(index), kind)

    def constant(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    codes = from_kafka("timestampType", pa.int32()).to_pylist()
    arrays = {
        "stream": constant(stream, pa.string()),
        "topic": from_kafka("topic", pa.string()),
        "partition": from_kafka("partition", pa.int32()),
        "offset": from_kafka("offset", pa.int64()),
        "timestamp": from_kafka("timestamp", _INSTANT),
        "timestamp_type": pa.array([_TIMESTAMP_TYPES.get(code) for code in codes], pa.string()),
        "key": from_kafka("key", pa.binary()),
        "value": from_kafka("value", pa.binary()),
        "headers": from_kafka("headers", _HEADERS),
        "stage": pa.array([failure.stage for failure in failures], pa.string()),
        "error_class": pa.array([failure.error_class for failure in failures], pa.string()),
        "message": pa.array([_text(failure.message) for failure in failures], pa.string()),
        "field": pa.array([_text(failure.field) for failure in failures], pa.string()),
        "config_hash": constant(config_hash, pa.string()),
        "batch_id": constant(batch_id, pa.int64()),
        "epoch": constant(epoch, pa.int64()),
        "first_seen": constant(first_seen.astimezone(UTC), _INSTANT),
    }
    made = pa.RecordBatch.from_arrays(list(arrays.values()), schema=ARROW_SCHEMA)
    return made.append_column(pa.field("masked", pa.string()), pa.array(parts, pa.string())) if any(parts) else made


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if values.type == kind else values.cast(kind)


def _text(value: str | None) -> str | None:
    """Text that UTF-8 can hold: a message may quote half of a surrogate pair that JSON escaped."""
    return value if value is None or value.isascii() else value.encode("utf-8", "backslashreplace").decode()
