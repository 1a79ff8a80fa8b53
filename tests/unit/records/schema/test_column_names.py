"""Names that a table's columns can have: one rule, whoever makes the columns."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StructType

from jobs.records.schema.column_names import ColumnNames, name_problems, usable_columns
from jobs.records.schema.evolution import judged
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.needs import Coordinates, EvolutionPolicy, RecordNeed
from jobs.records.schema.parser import parse_schema

AUTO = EvolutionPolicy("auto", "auto", "auto")
PARTITIONS = {"at_day": "at", "country": "country", "who.at_day": "who.at", "size_bucket": ""}
TABLE = "id string, at timestamptz, country string, who struct<at timestamptz>, `1x` int"
METADATA = ["_file", "_pos", "_deleted", "_partition", "_spec_id", "_row_id", "_last_updated_sequence_number", "_POS"]


def rows(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


def refused(path: tuple[str, ...], kind: Any, partitions: dict[str, str] | None = PARTITIONS) -> str | None:
    need = RecordNeed("add", path, kind, Coordinates("t", 0, 0))
    found = judged([need], rows(TABLE), AUTO, partitions=partitions)
    assert found.refused or [each.path for each in found.changes] == [path]
    return next((each.why.partition(";")[0] for each in found.refused), None)


@pytest.mark.parametrize("name", METADATA)
def test_no_column_of_a_table_is_called_like_a_metadata_column(name: str) -> None:
    why = f"{name} is a metadata column of Iceberg, and Spark reads no table with another one of that name"
    assert refused((name,), IntegerType()) == why
    assert refused(("who", name), IntegerType()) is None, "those are columns of a table's top"
    assert refused((name,), IntegerType(), None) is None, "a step may give it another name"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("at_day", True),
        ("At_Day", True),
        ("who.at_day", True),
        ("size_bucket", True),
        ("who.size_bucket", False),
        ("who.country", False),
    ],
)
def test_no_column_is_called_like_a_partition_field(name: str, taken: bool) -> None:
    why = f"a partition field is called {name}, and Spark loads no table with a column of that name"
    assert refused(tuple(name.split(".")), IntegerType()) == (why if taken else None)
    assert refused(tuple(name.split(".")), IntegerType(), {}) is None


def test_no_two_columns_have_one_name_in_files() -> None:
    assert refused(("_1x",), IntegerType()) == "data files call it _1x, and so they call column 1x"
    assert refused(("_1x",), IntegerType(), None) is None
    inner = StructType(NestedField(1, "a.b", IntegerType()), NestedField(2, "a_x2Eb", IntegerType()))
    assert refused(("new",), inner) == "data files call it a_x2Eb, and so they call column new.a.b"


def test_columns_that_exclude_each_other_leave_the_first() -> None:
    given = rows("`1x` int, _1x int, _pos int, at_day int, s struct<`2y` int, _2y int>, l list<struct<`\u2603` int>>")
    kept = usable_columns(given, ColumnNames(None, {"at_day": "at"}))
    assert [each.name for each in kept.fields] == ["1x", "s", "l"]
    assert str(kept.find_type("s")).count("2y") == 1
    assert usable_columns(given, ColumnNames(None, None)) == given
    assert usable_columns(rows("_pos int"), ColumnNames()).fields == ()


def test_a_table_that_is_there_is_read_as_long_as_names_are_not_the_same() -> None:
    there = rows("at timestamptz, country string, At_Day int, at_day_ int, _Pos int, `1x` int, _1x int")
    assert [".".join(path) for path, _ in name_problems(there, PARTITIONS)] == ["At_Day", "_Pos", "_1x"]
    assert [".".join(path) for path, _ in name_problems(there, PARTITIONS, str)] == ["_1x"]
