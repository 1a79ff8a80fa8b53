"""Partition expressions become Iceberg's partition fields, or an error that names them."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from jobs.spec.partitioning import parse_partition_expr
from jobs.write.partitioning import PartitionSpecError, partition_spec

SCHEMA = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "number", IntegerType()),
    NestedField(3, "long", LongType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "at_utc", TimestamptzType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "amount", DecimalType(9, 2)),
    NestedField(8, "raw", BinaryType()),
    NestedField(9, "flag", BooleanType()),
    NestedField(10, "real", DoubleType()),
    NestedField(11, "who", StructType(NestedField(12, "city", StringType()), NestedField(13, "since", DateType()))),
    NestedField(14, "tags", ListType(15, StringType(), False)),
    NestedField(16, "lines", ListType(17, StructType(NestedField(18, "sku", StringType())), False)),
    NestedField(19, "map", MapType(20, StringType(), 21, StringType(), False)),
    NestedField(22, "taken_day", StringType()),
    NestedField(23, "taken", DateType()),
)


def spec(*texts: str) -> PartitionSpec:
    return partition_spec([parse_partition_expr(text) for text in texts], SCHEMA)


def test_names_and_transforms_are_those_of_spark_unless_the_file_says_others() -> None:
    by = ("day(at)", "bucket(16, text)", "truncate(4, text)", "number", "who.city", "month(who.since)")
    made = spec(*by, "day(taken) as by_day", "long as `in`")
    assert [(field.source_id, field.field_id, str(field.transform), field.name) for field in made.fields] == [
        (4, 1000, "day", "at_day"),
        (1, 1001, "bucket[16]", "text_bucket"),
        (1, 1002, "truncate[4]", "text_trunc"),
        (2, 1003, "identity", "number"),
        (12, 1004, "identity", "who.city"),
        (13, 1005, "month", "who.since_month"),
        (23, 1006, "day", "by_day"),
        (3, 1007, "identity", "in"),
    ]
    assert spec().is_unpartitioned()


@pytest.mark.parametrize(
    "text",
    [
        *[f"{transform}({column})" for transform in ("year", "month", "day") for column in ("at", "at_utc", "day")],
        "hour(at)",
        "hour(at_utc)",
        *[f"bucket(4, {c})" for c in ("text", "number", "long", "at", "at_utc", "day", "amount", "raw")],
        *[f"truncate(4, {column})" for column in ("text", "number", "long", "amount", "raw")],
        *["text", "number", "long", "at", "at_utc", "day", "amount", "raw", "flag", "real"],
    ],
)
def test_what_iceberg_allows_is_taken(text: str) -> None:
    assert len(spec(text).fields) == 1


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["day(text)"], "Invalid source field text with type string for transform: day"),
        (["who"], "non-primitive"),
        (["tags.element"], "parent"),
        (["day(missing)"], "Could not find field with name missing"),
        (["day(taken)"], "its partition field would have the name of column taken_day"),
        (["day(taken) as taken"], "its partition field would have the name of column taken"),
        (["day(at) as number"], "its partition field would have the name of column number"),
        (["day(at)", "day(at)"], "is a second partition field named 'at_day'"),
    ],
)
def test_the_error_names_the_expression(texts: list[str], said: str) -> None:
    with pytest.raises(PartitionSpecError) as told:
        spec(*texts)
    assert texts[-1] in str(told.value)
    assert said in str(told.value)
