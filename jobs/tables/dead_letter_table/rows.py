"""Rows of the dead-letter table, made from failed records: their bytes, origin and failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.config.values.mask import NO_MASK, Mask
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.record_columns import NO_RECORD_COLUMNS, RecordColumns
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule
from jobs.tables.dead_letter_table.masking import masked
from jobs.tables.dead_letter_table.table import ARROW_SCHEMA

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
    columns: RecordColumns = NO_RECORD_COLUMNS,
    json_fields: bool = True,
    names: NameRule = EXACT_NAMES,
) -> pa.RecordBatch:
    """Failed records as rows of the dead-letter table.

    Args:
        records: Records as Kafka returned them: key, value, headers, topic, partition, offset, timestamp,
            timestampType. Only topic, partition and offset are required.
        failures: Failure of each record, in their order.
        config_hash: Hash of the configuration under which the records failed.
        batch_id: Spark's batch number; None for records that no batch of the stream's driver has read.
        epoch: The driver's epoch; None likewise.
        first_seen: An instant that is the same in each attempt at the batch, so that a replay makes the same rows.
        mask: Parts to remove from the records.
        rows: Schema of the rows that the stream decodes.
        columns: Columns of the rows that do not come from the value.
        json_fields: Whether the values are JSON, see `masked`.
        names: Rule that matches fields of values with columns.

    Returns:
        A row for each record, in the columns of `ARROW_SCHEMA`; with a column `masked` if parts were removed, and
        `row_before` if a step has refused a row.

    Raises:
        ValueError: `first_seen` has no zone.
    """
    if first_seen.tzinfo is None:
        raise ValueError("first_seen must have a zone")
    parts: list[str | None] = []
    if mask != NO_MASK:
        hidden = masked(records, failures, mask, rows, columns, json_fields=json_fields, names=names)
        records, failures, parts = hidden.records, hidden.failures, hidden.parts
    count = records.num_rows

    def from_kafka(name: str, kind: pa.DataType) -> pa.Array:
        index = records.schema.get_field_index(name)
        return pa.nulls(count, kind) if index < 0 else _as(records.column(index), kind)

    kinds = {each.name: each.type for each in ARROW_SCHEMA}
    constants = {
        "stream": stream,
        "config_hash": config_hash,
        "batch_id": batch_id,
        "epoch": epoch,
        "first_seen": first_seen.astimezone(UTC),
    }
    codes = from_kafka("timestampType", pa.int32()).to_pylist()
    arrays = {name: pa.repeat(pa.scalar(value, kinds[name]), count) for name, value in constants.items()} | {
        "timestamp_type": pa.array([_TIMESTAMP_TYPES.get(code) for code in codes], pa.string()),
        "stage": pa.array([failure.stage for failure in failures], pa.string()),
        "error_class": pa.array([failure.error_class for failure in failures], pa.string()),
        "message": pa.array([_text(failure.message) for failure in failures], pa.string()),
        "field": pa.array([_text(failure.field) for failure in failures], pa.string()),
    }
    made = pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else from_kafka(name, kind) for name, kind in kinds.items()],
        schema=ARROW_SCHEMA,
    )
    later = {"masked": parts, "row_before": [_text(failure.before) for failure in failures]}
    for name, texts in later.items():
        if any(texts):
            made = made.append_column(pa.field(name, pa.string()), pa.array(texts, pa.string()))
    return made


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if values.type == kind else values.cast(kind)


def _text(value: str | None) -> str | None:
    """Text without what UTF-8 cannot hold: a message may quote half of a surrogate pair that JSON escaped."""
    return value if value is None or value.isascii() else value.encode("utf-8", "backslashreplace").decode()
