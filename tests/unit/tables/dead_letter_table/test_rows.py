"""Dead letters keep the bytes and where they came from, and land in a real table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.records.formats.interface.decoder import Failure
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.dead_letter_table.table import (
    ARROW_SCHEMA,
    DEAD_LETTER_PARTITIONS,
    DEAD_LETTER_SCHEMA,
    OF_THE_RECORD,
    REPLAY_STATE_ARROW,
    REPLAY_STATE_FIELDS,
)
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from jobs.tables.write.target_writer import TargetWriter

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SEEN = datetime(2024, 3, 1, 23, 30, tzinfo=UTC)


def records(**changed: Any) -> pa.RecordBatch:
    count = 4
    columns = {
        "key": pa.array([b"k0", None, b"", b"\xff"], pa.binary()),
        "value": pa.array([b"{}", b"", b"\x00\xff{", b"x" * 100], pa.binary()),
        "headers": pa.array(
            [None, [], [{"key": "trace", "value": b"\x01"}, {"key": "", "value": None}], None], HEADERS
        ),
        "topic": pa.array(["payments"] * count),
        "partition": pa.array([0, 1, 2, 3], pa.int32()),
        "offset": pa.array([10, 11, 2**60, 13]),
        "timestamp": pa.array([0, 1_700_000_000_000_000, None, 5], pa.timestamp("us", "America/Sao_Paulo")),
        "timestampType": pa.array([0, 1, None, 9], pa.int32()),
    }
    return pa.record_batch({name: array for name, array in (columns | changed).items() if array is not None})


def failure(row: int, message: str = "bad", field: str | None = "$.a") -> Failure:
    return Failure(row, "decode_value", "wrong_type", message, field)


def rows_of(batch: pa.RecordBatch, *failures: Failure) -> pa.RecordBatch:
    failed = batch.take(pa.array([failure.row for failure in failures], pa.int64()))
    return dead_letter_rows(
        failed, failures, stream="payments", config_hash="abc", batch_id=7, epoch=2, first_seen=SEEN
    )


def test_a_failed_record_is_kept_byte_for_byte() -> None:
    first, second = rows_of(records(), failure(2), failure(0, field=None)).to_pylist()
    assert first == {
        "stream": "payments",
        "topic": "payments",
        "partition": 2,
        "offset": 2**60,
        "timestamp": None,
        "timestamp_type": None,
        "key": b"",
        "value": b"\x00\xff{",
        "headers": [{"key": "trace", "value": b"\x01"}, {"key": "", "value": None}],
        "stage": "decode_value",
        "error_class": "wrong_type",
        "message": "bad",
        "field": "$.a",
        "config_hash": "abc",
        "batch_id": 7,
        "epoch": 2,
        "first_seen": SEEN,
    }
    assert (second["key"], second["value"], second["headers"], second["field"]) == (b"k0", b"{}", None, None)
    assert (second["timestamp"], second["timestamp_type"]) == (datetime(1970, 1, 1, tzinfo=UTC), "CreateTime")
    assert rows_of(records(), failure(1)).column("timestamp_type").to_pylist() == ["LogAppendTime"]


def test_the_columns_are_those_of_the_table() -> None:
    life = [field.name for field in REPLAY_STATE_FIELDS]
    assert [*ARROW_SCHEMA.names, *life] == [field.name for field in DEAD_LETTER_SCHEMA.fields]
    assert [f.nullable for f in ARROW_SCHEMA] == [f.optional for f in DEAD_LETTER_SCHEMA.fields[: len(ARROW_SCHEMA)]]
    assert [*REPLAY_STATE_ARROW.names, *OF_THE_RECORD] == life
    assert all(field.optional for field in REPLAY_STATE_FIELDS), "the stream leaves them null"
    assert rows_of(records()).num_rows == 0
    assert rows_of(records()).schema == ARROW_SCHEMA


def test_constant_columns_may_be_dictionaries_and_optional_ones_missing() -> None:
    batch = records(
        topic=pa.array(["t"] * 4).dictionary_encode(), headers=None, timestamp=None, timestampType=None, key=None
    )
    (row,) = rows_of(batch, failure(1)).to_pylist()
    assert row["topic"] == "t"
    assert row["headers"] is row["timestamp"] is row["timestamp_type"] is row["key"] is None


def test_a_message_with_half_a_surrogate_pair_is_kept() -> None:
    (row,) = rows_of(records(), failure(0, message="found \ud800", field="$.\udfff")).to_pylist()
    assert row["message"] == "found \\ud800"
    assert row["field"] == "$.\\udfff"


def test_an_instant_is_needed() -> None:
    with pytest.raises(ValueError, match="zone"):
        dead_letter_rows(
            records(),
            [],
            stream="s",
            config_hash="c",
            batch_id=0,
            epoch=0,
            first_seen=datetime.fromisoformat("2024-01-01"),
        )
    zone = timezone(timedelta(hours=-3))
    batch = dead_letter_rows(
        records()[:1], [failure(0)], stream="s", config_hash="c", batch_id=0, epoch=0, first_seen=SEEN.astimezone(zone)
    )
    assert batch.column("first_seen").to_pylist() == [SEEN]


def test_they_land_in_their_table(tmp_path: Path) -> None:
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    spec = partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA)
    table = ensure_table(catalog, "orders.payments_dead", DEAD_LETTER_SCHEMA, spec, create_table_properties({}))
    rows = rows_of(records(), *[failure(row) for row in range(4)])
    writer = TargetWriter(table.metadata, table.io, file_prefix="dead")
    writer.write(rows)
    files = writer.close()
    assert [file.partition[0] for file in files] == [19783]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)
    landed = table.refresh().scan(selected_fields=ARROW_SCHEMA.names).to_arrow().drop_columns(["headers"])
    expected = pa.Table.from_batches([rows]).drop_columns(["headers"])
    assert landed.to_pylist() == expected.to_pylist()
    catalog.close()
