"""Files that Iceberg's reader reads in the JVM: the rows that are read without Spark, and nothing stays behind."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from jobs.quality.contracts.unavailable import SparkFailedError
from jobs.quality.incremental_scan import spark_rows
from jobs.quality.incremental_scan.arrow_rows import small_table
from jobs.quality.incremental_scan.increment import increment_since
from jobs.quality.incremental_scan.row_selection import RowSelection, increment_rows
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again, spark_frame
from tests.helpers.check_world import CheckWorld
from tests.helpers.landed_table import COORDINATES, LandedTable
from tests.unit.quality.incremental_scan.test_increment import here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.integration

SCHEMA = (
    "id long, amount double, at timestamptz, wall timestamp, day date, price decimal(12,2), number int, small float, "
    "name string, octets binary, eight fixed(8), yes boolean, u uuid, tags list<string>, "
    "person struct<name string, age int>, people list<struct<name string, age int>>, named map<string, int>"
)
ROWS = 40


def values(count: int) -> dict[str, Any]:
    """Each kind of value, with nulls, empty ones, and more of the same than a dictionary is made for."""
    person = [None if n % 5 == 0 else {"name": None if n % 7 == 0 else "x", "age": n} for n in range(count)]
    return {
        "wall": [None if n % 3 == 0 else 1_700_000_000_000_000 + n for n in range(count)],
        "day": [None if n % 3 == 0 else 20_000 + n % 4 for n in range(count)],
        "price": [Decimal(f"{n % 9}.25") for n in range(count)],
        "number": [None if n % 6 == 0 else n % 4 - 2 for n in range(count)],
        "small": [None if n % 6 == 0 else n % 4 / 2 for n in range(count)],
        "name": [None if n % 2 else f"n{n % 6}" for n in range(count)],
        "octets": [None if n % 2 else bytes([n]) for n in range(count)],
        "eight": [None if n % 3 else bytes([n]) * 8 for n in range(count)],
        "yes": [None if n % 3 == 0 else n % 3 == 1 for n in range(count)],
        "u": [None if n % 9 == 0 else bytes(15) + bytes([n]) for n in range(count)],
        "tags": [None if n % 4 == 0 else [] if n % 4 == 1 else ["a", None] for n in range(count)],
        "person": person,
        "people": [None if n % 4 == 0 else [] if n % 4 == 1 else [person[n], None] for n in range(count)],
        "named": [None if n % 4 == 0 else [] if n % 4 == 1 else [("a", n), ("b", None)] for n in range(count)],
    }


def kept(session: SparkSession) -> tuple[int, int]:
    """How much the JVM keeps of what was staged: tables, and sets of tasks."""
    spark: Any = session._jvm.org.apache.iceberg.spark  # type: ignore[union-attr]
    tables = spark.SparkTableCache.get()
    sets = sum(spark.ScanTaskSetManager.get().fetchSetIds(each).size() for each in list(tables.tables().toArray()))
    return tables.size(), sets


def through_python(frame: DataFrame) -> bool:
    query: Any = frame._jdf
    return "MapInArrow" in query.queryExecution().toString()


def rows(frame: DataFrame) -> list[str]:
    return sorted(repr(each) for each in frame.toArrow().to_pylist())


def same(selection: RowSelection, session: SparkSession, landed: LandedTable, columns: Collection[str]) -> int:
    """How many rows are read, after each was found to be the same in the JVM, through Python, and without Spark."""
    arrow = small_table(selection, columns)
    slow = spark_frame(selection, columns, session, landed.settings)
    with contextlib.ExitStack() as until:
        frame = rows_to_read_again(selection, columns, session, landed.settings, until)
        assert kept(session) == (1, 1)
        assert not through_python(frame)
        assert frame.dtypes == slow.dtypes
        by_jvm = frame.toArrow()
        assert frame.count() == arrow.num_rows
    assert kept(session) == (0, 0)
    expected = sorted(map(repr, arrow.to_pylist()))
    assert sorted(map(repr, by_jvm.cast(arrow.schema).to_pylist())) == expected
    assert rows(slow) == sorted(map(repr, by_jvm.to_pylist()))
    return len(expected)


def all_files(landed: LandedTable) -> RowSelection:
    """The files of all snapshots, as they landed."""
    table = landed.table
    return RowSelection(table, None, tuple(each.file for each in table.scan(AlwaysTrue()).plan_files()))


def names(landed: LandedTable) -> list[str]:
    return [each.name for each in landed.table.schema().fields]


CHANGES: dict[str, tuple[Callable[[UpdateSchema], Any], ...]] = {
    "added within a list": (lambda u: u.add_column(("people", "element", "new"), StringType()),),
    "a name used again": (
        lambda u: u.rename_column("name", "x"),
        lambda u: u.add_column("name", StringType()),
    ),
    "widened": (
        lambda u: u.update_column("number", field_type=LongType()),
        lambda u: u.update_column("small", field_type=DoubleType()),
        lambda u: u.update_column("price", field_type=DecimalType(20, 2)),
        lambda u: u.update_column(("person", "age"), field_type=LongType()),
        lambda u: u.update_column(("named", "value"), field_type=LongType()),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_both_ways_give_the_same_rows(tmp_path: Path, spark: SparkSession, change: str) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    landed.land((0, 0, ROWS), **values(ROWS))
    for each in CHANGES[change]:
        with landed.table.update_schema() as update:
            each(update)
    landed.land((1, 0, ROWS), **values(ROWS))
    assert same(all_files(landed), session, landed, names(landed)) == 2 * ROWS


def test_a_struct_that_got_a_field_is_there_whichever_of_its_fields_is_asked_for(
    tmp_path: Path, spark: SparkSession
) -> None:
    from pyspark.sql import functions as sql

    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    landed.land((0, 0, ROWS), **values(ROWS))
    with landed.table.update_schema() as update:
        update.add_column(("person", "new"), StringType())
    selection = all_files(landed)
    slow = spark_frame(selection, ["id", "person"], session, landed.settings)
    shown = ["id", sql.col("person").isNotNull().alias("there"), sql.col("person.new").alias("new")]
    with contextlib.ExitStack() as until:
        fast = rows_to_read_again(selection, ["id", "person"], session, landed.settings, until)
        assert kept(session) == (1, 1)
        assert rows(fast.select(*shown)) == rows(slow.select(*shown))
        met = fast.where("person.new is null and person is not null")
        assert met.count() == slow.where("person.new is null and person is not null").count() == ROWS * 4 // 5


def test_columns_that_the_table_is_partitioned_by_are_those_of_the_files(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    landed.land((0, 0, ROWS), **values(ROWS))
    for name, transform in (("day", IdentityTransform()), ("id", BucketTransform(2))):
        with landed.table.update_spec() as update:
            update.add_field(name, transform, f"part_{name}")
    landed.land((1, 0, ROWS), **values(ROWS))
    selection = all_files(landed)
    assert len({each.spec_id for each in selection.files}) == 2
    assert same(selection, session, landed, names(landed)) == 2 * ROWS


def test_ranges_that_the_scan_brings_are_left_out(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home")
    landed.land((0, 0, 10))
    position = here(landed)
    first = landed.land((0, 10, 30))
    landed.land((0, 30, 32), (1, 0, 7))
    landed.replay([(0, 5), (0, 12), (0, 31)])
    landed.expire(position.snapshot_id, first)
    table = landed.table
    found = increment_since(table.metadata, table.io, "orders", position)
    selection = increment_rows(found, table, COORDINATES, None)
    assert selection.outside and selection.files and selection.snapshot_id is not None
    assert same(selection, session, landed, ["id", "amount"]) == small_table(selection, ["id"]).num_rows


@pytest.mark.parametrize("case", ["time", "gone", "altered meanwhile"])
def test_what_is_not_read_alike_comes_through_python(
    tmp_path: Path, spark: SparkSession, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = spark.newSession()
    landed = LandedTable(tmp_path / "home", schema="id long, at timestamptz" + (", t time" if case == "time" else ""))
    more: dict[str, Any] = {"t": [1, 2, 3, None]} if case == "time" else {}
    landed.land((0, 0, 4), **more)
    selection = all_files(landed)
    if case == "altered meanwhile":
        with landed.table.update_schema() as update:
            update.add_column("new", StringType())
    if case == "gone":
        Path(selection.files[0].file_path.removeprefix("file://")).unlink()
    with caplog.at_level(logging.INFO, "jobs.quality.incremental_scan.spark_rows"), contextlib.ExitStack() as until:
        frame = rows_to_read_again(selection, ["id"], session, landed.settings, until)
        assert kept(session) == (0, 0) and through_python(frame)
        if case != "gone":
            assert frame.count() == 4
    (said,) = [each for each in caplog.records if each.name == "jobs.quality.incremental_scan.spark_rows"]
    expected = {
        "time": (logging.INFO, "a column of the type time (t)"),
        "gone": (logging.INFO, "a file is not there, as the JVM sees it"),
        "altered meanwhile": (logging.INFO, "the table has another schema by now"),
    }[case]
    assert said.levelno == expected[0] and expected[1] in said.getMessage()


@pytest.mark.parametrize("fails", [False, True])
def test_a_check_reads_files_in_the_jvm_and_leaves_nothing_there(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    def refused(*_: object) -> NoReturn:
        raise AssertionError("the rows would have come through Python")

    session = spark.newSession()
    sessions: Any = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    active = sessions.getActiveSession()
    world = CheckWorld(
        tmp_path / "home",
        {
            "expectations": [
                {"expect_column_values_to_not_be_null": {"column": "amount"}, "name": "amount_is_set"},
                {"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "unique"},
            ]
        },
    )
    world.land(0, [1.0])
    world.check()
    world.land(1, [2.0, None, 3.0])
    world.land(4, [4.0])
    monkeypatch.setattr(spark_rows, "_of_files", refused)
    if fails:
        # Not the file that is looked for before anything is staged.
        found = increment_since(world.table.metadata, world.table.io, "orders", world.recorded)
        Path(found.files[-1].file_path.removeprefix("file://")).unlink()
        with pytest.raises(SparkFailedError, match="could not be checked, since Spark failed"):
            world.check(engine="spark", spark=lambda: session)
    else:
        found = world.check(engine="spark", spark=lambda: session)
        assert (found.rows, found.engine, found.recorded) == (4, "spark", True)
        assert {each.name: each.unexpected for each in found.outcomes} == {"amount_is_set": 1, "unique": 0}
    assert kept(session) == (0, 0)
    assert not spark.sparkContext._jsc.getPersistentRDDs()  # pyright: ignore
    assert sessions.getActiveSession().isDefined() == active.isDefined()
