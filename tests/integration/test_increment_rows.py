"""Spark reads the same rows of a selection as PyIceberg: files as they landed, scans, and after compaction."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, LongType, StringType

from jobs.commit.offsets import TopicPartition
from jobs.contract.earlier_rows import EarlierRows
from jobs.contract.unavailable import SparkFailedError, is_unavailable
from jobs.increment.arrow_rows import small_table
from jobs.increment.increment import added_files, increment_since
from jobs.increment.row_selection import RowSelection, increment_rows, whole_table
from jobs.increment.spark_rows import rows_to_read_again, spark_frame
from jobs.increment.validated_position import CheckSummary
from tests.helpers.check_world import CheckWorld, no_spark
from tests.helpers.landed_table import BEGIN, COORDINATES, NAME, LandedTable
from tests.unit.increment.test_increment import NOW, here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

COLUMNS = ("id", "amount", "at", "day", "price", "name", "tags", "person", "u", "_kafka_offset")
SCHEMA = (
    "id long, amount double, at timestamptz, day date, price decimal(12,2), name string, tags list<string>, "
    "person struct<name string, age int>, u uuid"
)


def values(count: int) -> dict[str, Any]:
    return {
        "day": [None if n % 3 == 0 else 20_000 + n for n in range(count)],
        "price": [f"{n}.25" for n in range(count)],
        "name": [None if n % 2 else f"n{n}" for n in range(count)],
        "tags": [None if n % 4 == 0 else [] if n % 4 == 1 else ["a", None] for n in range(count)],
        "person": [None if n % 5 == 0 else {"name": "x", "age": None} for n in range(count)],
        "u": [bytes(15) + bytes([n]) for n in range(count)],
    }


def same(
    selection: RowSelection,
    spark: SparkSession,
    landed: LandedTable,
    columns: tuple[str, ...] = COLUMNS,
    *,
    python: bool = False,
) -> int:
    """How many rows each reader sees, after each was found to see the same.

    Args:
        python: Whether Iceberg's own reader is not expected to read the files.
    """
    arrow = small_table(selection, columns)
    expected = sorted(arrow.to_pylist(), key=repr)
    with contextlib.ExitStack() as until:
        frames = [
            spark_frame(selection, columns, spark, landed.settings),
            rows_to_read_again(selection, columns, spark, landed.settings, until),
        ]
        for frame in frames:
            assert frame.columns == arrow.schema.names
            assert sorted(frame.toArrow().cast(arrow.schema).to_pylist(), key=repr) == expected
        if selection.files:
            assert [through_python(each) for each in frames] == [True, python]
    assert staged(spark) == 0 and not spark.sparkContext._jsc.getPersistentRDDs()  # pyright: ignore
    return len(expected)


def through_python(frame: DataFrame) -> bool:
    plan: Any = frame._jdf
    return "MapInArrow" in plan.queryExecution().toString()


def all_files(table: Table) -> list[DataFile]:
    """What every snapshot has added."""
    return [file for each in table.metadata.snapshots for file in added_files(each, table.io)]


def staged(spark: SparkSession) -> int:
    """How many tables are kept in the JVM for files that are read."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.SparkTableCache.get().size()


def test_both_engines_see_the_same_rows(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)

    def made(count: int) -> dict[str, Any]:
        found = values(count)
        return found | {"price": [Decimal(str(each)) for each in found["price"]]}

    landed.land((0, 0, 10), **made(10))
    position = here(landed)
    first = landed.land((0, 10, 30), **made(20))
    landed.land((1, 0, 7), **made(7))
    table = landed.table
    found = increment_since(table.metadata, table.io, "orders", position)
    assert same(increment_rows(found, table, COORDINATES, None), session, landed) == 27
    assert same(whole_table(table, COORDINATES, None), session, landed) == 37
    for where, rows in (
        ("not (id < 100000)", 7),
        ("at >= '2026-03-01T12:05:00+00:00' and _kafka_partition = 0", 25),
    ):
        assert same(whole_table(table, COORDINATES, None, where=where), session, landed) == rows, where
    # A column that came after the snapshot.
    with table.update_schema() as change:
        change.add_column("note", StringType())
    table = landed.table
    assert same(whole_table(table, COORDINATES, None), session, landed, ("id", "note")) == 37
    # Compacted by Spark, and expired: by offsets.
    procedure = f"{landed.settings.catalog.name}.system.rewrite_data_files"
    session.sql(f"CALL {procedure}('{NAME}', options => map('rewrite-all', 'true'))")
    table = landed.table
    found = increment_since(table.metadata, table.io, "orders", position)
    assert found.found == "files" and same(increment_rows(found, table, COORDINATES, None), session, landed) == 27
    landed.land((0, 30, 32), **made(2))
    landed.replay([(5, 5)])
    landed.expire(position.snapshot_id, first, delete=True)
    table = landed.table
    found = increment_since(table.metadata, table.io, "orders", position)
    assert found.found == "offsets"
    assert same(increment_rows(found, table, COORDINATES, None), session, landed) == 30
    empty = found.validated(NOW, CheckSummary())
    assert empty is not None
    nothing = increment_since(table.metadata, table.io, "orders", empty)
    assert nothing.empty and same(increment_rows(nothing, table, COORDINATES, None), session, landed) == 0


def test_earlier_rows_are_the_same_by_both(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema="id long, name string, u uuid, at timestamptz, wall timestamp")

    def made(numbers: range) -> dict[str, Any]:
        times = [BEGIN + timedelta(minutes=17 * n) for n in numbers]
        return {
            "id": list(numbers),
            "name": [None if n % 7 == 0 else f"it's {n % 10}" for n in numbers],
            "u": [bytes(14) + n.to_bytes(2, "big") for n in numbers],
            "at": times,
            "wall": [each.replace(tzinfo=None) for each in times],
        }

    landed.land((0, 0, 60), **made(range(60)))
    landed.land((0, 60, 90), **made(range(50, 80)))
    everything = whole_table(landed.table, COORDINATES, None)
    new = whole_table(landed.table, COORDINATES, None, where="_kafka_offset >= 60")
    columns = ("id", "name", "u", "at", "wall")
    rows = small_table(new, columns)
    arrow = EarlierRows(everything, rows, no_spark, landed.settings)
    frame = spark_frame(new, columns, session, landed.settings)
    by_spark = EarlierRows(everything, frame, lambda: session, landed.settings, most_rows=0)
    for names in (("id", "name"), ("u",)):
        keys = rows.select(list(names)).group_by(list(names)).aggregate([])
        known = [sorted(each.known_keys(names, keys).to_pylist(), key=repr) for each in (arrow, by_spark)]
        assert known[0] == known[1] and known[0], names
        # 56 has no name.
        assert len(known[0]) == (9 if names == ("id", "name") else 10), names
    last = BEGIN + timedelta(hours=22)
    for column in ("at", "wall"):
        told = [dict(each.past_volumes(column, last - timedelta(days=2), last)) for each in (arrow, by_spark)]
        assert told[0] == told[1] and sum(told[0].values()) == 60, column


def test_files_of_former_schemas_and_partitions_are_read_as_the_table_is_now(
    tmp_path: Path, spark: SparkSession
) -> None:
    session = spark.newSession()
    landed = LandedTable(
        tmp_path / "home", schema="id long, amount float, n int, name string, person struct<name string, age int>"
    )
    rows = {"n": [*range(5)], "name": ["a", "b", None, "a", "b"], "person": [{"name": "x", "age": n} for n in range(5)]}
    landed.land((0, 0, 5), **rows)
    with landed.table.update_spec() as change:
        # What is a partition's value stands in the files as well.
        change.add_identity("name")
        change.add_field("_kafka_timestamp", DayTransform())
    landed.land((0, 5, 10), **rows)
    with landed.table.update_schema() as change:
        change.update_column("n", LongType())
        change.update_column("amount", DoubleType())
    with landed.table.update_schema() as change:
        change.rename_column("n", "number")
        change.rename_column(("person", "name"), "called")
    with landed.table.update_schema() as change:
        change.add_column(("person", "note"), StringType())
        change.add_column("n", StringType())
    again = {"number": rows["n"], "n": ["new"] * 5, "name": rows["name"]}
    landed.land((1, 0, 5), **again, person=[{"called": "y", "age": None, "note": "z"}] * 5)
    table = landed.table
    files = all_files(table)
    assert len({file.spec_id for file in files}) == 2
    everything = RowSelection(table, COORDINATES, files)
    columns = ("id", "amount", "number", "n", "name", "person", "_kafka_offset")
    assert same(everything, session, landed, columns) == 15
    # Rows of some ranges are left out, by columns that are not among those that are wanted.
    outside = {TopicPartition("orders", 0): [(3, 6), (8, 9)], TopicPartition("it's", 0): [(0, 100)]}
    assert same(replace(everything, outside=outside), session, landed, ("id", "n")) == 15 - 4
    # The catalog has another schema by now than the rows are wanted in.
    with landed.table.update_schema() as change:
        change.add_column("late", StringType())
    assert same(everything, session, landed, columns, python=True) == 15
    landed.catalog.rename_table(NAME, "lake.former")
    assert same(everything, session, landed, columns, python=True) == 15


def test_files_are_let_go_though_reading_them_fails(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home")
    landed.land((0, 0, 5))
    table = landed.table
    files = all_files(table)
    with contextlib.ExitStack() as until:
        frame = rows_to_read_again(RowSelection(table, None, files), ("id",), session, landed.settings, until)
        assert staged(session) == 1 and frame.count() == 5
        Path(files[0].file_path.removeprefix("file://")).unlink()
        with pytest.raises(Exception, match=r"Failed to open|does not exist|Cannot open") as raised:
            frame.toArrow()
        assert is_unavailable(raised.value)
    assert staged(session) == 0


def test_a_file_that_is_gone_is_no_fault_of_the_rows(tmp_path: Path, spark: SparkSession) -> None:
    world = CheckWorld(tmp_path / "home")
    world.land(0, [1.0, None])
    world.check()
    assert world.recorded is not None
    position = world.recorded.snapshot_id
    world.land(2, [3.0, None])
    files = all_files(world.table)
    Path(files[-1].file_path.removeprefix("file://")).unlink()
    session = spark.newSession()
    with pytest.raises(SparkFailedError, match="could not be checked, since Spark failed"):
        world.check(engine="spark", spark=lambda: session)
    assert world.recorded is not None and world.recorded.snapshot_id == position
