"""The memory of deleted keys: from when on the changelog is asked for later changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyiceberg import conversions
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, TimestamptzType

from jobs.mirror.removed_keys import MEMORY, memory_begins

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(7, "_kafka_timestamp", TimestamptzType()))


def file_until(at: datetime | None) -> DataFile:
    bounds = {} if at is None else {7: conversions.to_bytes(TimestamptzType(), int(at.timestamp() * 1_000_000))}
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path="a", file_format=FileFormat.PARQUET, partition=Record(),
        upper_bounds=bounds,
    )  # fmt: skip


def test_it_reaches_back_from_the_newest_change_of_an_increment() -> None:
    files = [file_until(AT), file_until(None), file_until(AT - timedelta(days=90))]
    assert memory_begins(COLUMNS, "_kafka_timestamp", files) == AT - MEMORY
    assert memory_begins(COLUMNS, "_kafka_timestamp", [file_until(None)]) is None
    assert memory_begins(COLUMNS, "another", files) is None
