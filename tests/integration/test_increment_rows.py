"""Spark reads the same rows of a selection as PyIceberg: files as they landed, scans, and after compaction."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import StringType

from jobs.quality.contracts.earlier_rows import EarlierRows
from jobs.quality.incremental_scan.arrow_rows import small_table
from jobs.quality.incremental_scan.increment import increment_since
from jobs.quality.incremental_scan.row_selection import RowSelection, increment_rows, whole_table
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again, spark_frame
from jobs.quality.incremental_scan.validated_position import CheckSummary
from tests.helpers.check_world import no_spark
from tests.helpers.landed_table import BEGIN, COORDINATES, NAME, LandedTable
from tests.unit.quality.incremental_scan.test_increment import NOW, here

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
) -> int:
    """How many rows each reader sees, after each was found to see the same."""
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
            assert [through_python(each) for each in frames] == [True, False]
    assert staged(spark) == 0 and not spark.sparkContext._jsc.getPersistentRDDs()  # pyright: ignore
    return len(expected)


def through_python(frame: DataFrame) -> bool:
    plan: Any = frame._jdf
    return "MapInArrow" in plan.queryExecution().toString()


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
