"""The memory of deleted keys: from when on the changelog is asked for later changes."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg import conversions
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, TimestamptzType

from jobs.config.stream.changes import DELETION_MEMORY
from jobs.mirrors.fold.fold import FOLD_COLUMN, UPSERT
from jobs.mirrors.fold.refold import may_be_behind, memory_begins
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.mirrors.model.order_token import STREAMED, order_token

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(7, "_kafka_timestamp", TimestamptzType()))


def file_until(at: datetime | None) -> DataFile:
    return file_with(None if at is None else int(at.timestamp() * 1_000_000))


def file_with(micros: int | None) -> DataFile:
    bounds = {} if micros is None else {7: conversions.to_bytes(TimestamptzType(), micros)}
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path="a", file_format=FileFormat.PARQUET, partition=Record(),
        upper_bounds=bounds,
    )  # fmt: skip


def test_it_reaches_back_from_the_newest_change_of_an_increment() -> None:
    files = [file_until(AT), file_until(None), file_until(AT - timedelta(days=90))]
    later = AT.timestamp() + 60
    assert memory_begins(COLUMNS, "_kafka_timestamp", files, later) == AT - DELETION_MEMORY
    assert memory_begins(COLUMNS, "_kafka_timestamp", [file_until(None)], later) is None
    assert memory_begins(COLUMNS, "another", files, later) is None


@pytest.mark.parametrize("micros", [2**62, -(2**62), 0])
def test_a_clock_that_is_wrong_stops_nothing(micros: int) -> None:
    """Producers set Kafka's times: microseconds for milliseconds are a time in the year 55,000."""
    files = [file_until(AT), file_with(micros)]
    now = AT.timestamp() + 3600
    expected = datetime.fromtimestamp(now, UTC) if micros > 0 else AT
    assert memory_begins(COLUMNS, "_kafka_timestamp", files, now) == expected - DELETION_MEMORY
    assert memory_begins(COLUMNS, "_kafka_timestamp", [file_with(-(2**62))], now) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("order", "behind"),
    [
        (order_token(0, "0001", STREAMED, 9), True),
        (order_token(0, "0009", STREAMED, 9), False),
        # Offsets say nothing of another partition's, nor positions of those before a restore.
        (order_token(0, None, STREAMED, 0), False),
        (order_token(1, "0001", STREAMED, 9), False),
    ],
)
def test_only_what_a_position_puts_before_a_removal_is_looked_up(order: str, behind: bool) -> None:
    asked = may_be_behind(order_token(0, "0005", STREAMED, 7)).replace("substring(", "substr(")
    with sqlite3.connect(":memory:") as rows:
        rows.execute(f"CREATE TABLE folded ({FOLD_COLUMN} text, {ORDER_COLUMN} text)")
        rows.execute("INSERT INTO folded VALUES (?, ?)", (UPSERT, order))
        assert rows.execute(f"SELECT count(*) FROM folded WHERE {asked}").fetchone() == (int(behind),)
