"""Counting rows by Kafka's coordinates in a real table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from jobs.base.errors import FrazilError
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.tables.ledger.row_counter import MANY, RowCounter, missing_column

SCHEMA = Schema(
    NestedField(1, "_kafka_topic", StringType()),
    NestedField(2, "_kafka_partition", IntegerType()),
    NestedField(3, "_kafka_offset", LongType()),
)

PLACES = KAFKA_COLUMNS.coordinates


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("orders")
    return catalog.create_table("orders.payments", SCHEMA, properties={"format-version": "2"})


def append(table: Table, *rows: tuple[str | None, int | None, int | None]) -> None:
    columns = list(zip(*rows, strict=True))
    names = [column.name for column in SCHEMA.columns]
    table.append(pa.table(dict(zip(names, map(list, columns), strict=True)), schema=SCHEMA.as_arrow()))


def piece(topic: str, partition: int, start: int, end: int) -> PartitionRange:
    return PartitionRange(TopicPartition(topic, partition), OffsetRange(start, end))


def counted(table: Table, *pieces: PartitionRange) -> list[list[int]]:
    return [each.tolist() for each in RowCounter(table, PLACES).count(pieces)]


def test_rows_of_several_partitions_in_one_file(table):
    append(table, ("a", 0, 5), ("b", 0, 5), ("a", 1, 6), ("a", 0, 7), ("a", 0, 5), ("a", 0, 9), (None, None, None))
    assert counted(table, piece("a", 0, 5, 8), piece("a", 1, 5, 8), piece("b", 0, 4, 6), piece("a", 0, 8, 10)) == [
        [2, 0, 1],
        [0, 1, 0],
        [0, 1],
        [0, 1],
    ]


def test_more_pieces_than_conditions_in_a_filter(table):
    append(table, *(("a", 0, offset) for offset in range(0, 200, 2)))
    pieces = [piece("a", 0, start, start + 3) for start in range(0, 200, 4)]
    assert counted(table, *pieces) == [[1, 0, 1]] * 50


def test_many_rows_of_one_offset_are_many(table):
    append(table, *[("a", 0, 3)] * (MANY + 50), ("a", 0, 4))
    append(table, *[("a", 0, 3)] * 50)
    assert counted(table, piece("a", 0, 3, 5)) == [[MANY, 1]]


def test_offsets_beyond_two_billion_and_in_any_order(table):
    big = 5_000_000_000
    append(table, ("a", 0, big + 2), ("a", 0, big), ("a", 0, big + 1))
    assert counted(table, piece("a", 0, big, big + 4)) == [[1, 1, 1, 0]]


def test_files_without_the_offsets_are_not_read(table):
    append(table, *(("a", 0, offset) for offset in range(10)))
    append(table, *(("a", 0, offset) for offset in range(10, 15)))
    read: list[int] = []
    counter = RowCounter(table, PLACES, on_rows=read.append)
    assert counter.count([piece("a", 0, 11, 13)])[0].tolist() == [1, 1]
    assert sum(read) <= 5


def test_an_earlier_snapshot_and_an_empty_table(table):
    assert counted(table, piece("a", 0, 0, 2)) == [[0, 0]]
    append(table, ("a", 0, 0))
    first = table.current_snapshot()
    append(table, ("a", 0, 1))
    assert first is not None
    assert RowCounter(table, PLACES, snapshot_id=first.snapshot_id).count([piece("a", 0, 0, 2)])[0].tolist() == [
        1,
        0,
    ]


def test_a_table_without_the_columns_says_so(table):
    assert missing_column(table, PLACES) is None
    assert missing_column(table, DEAD_LETTER_COORDINATES) == "topic"


def test_a_file_that_is_gone_is_said_in_words(table):
    append(table, ("a", 0, 0))
    (task,) = table.scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(FrazilError, match=r"the rows of table orders\.payments cannot be counted: FileNotFoundError"):
        counted(table, piece("a", 0, 0, 2))
