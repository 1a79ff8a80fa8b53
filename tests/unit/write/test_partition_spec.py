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

from jobs.spec.partitioning import PartitionExpr, parse_partition_expr
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


def test_names_and_transforms_are_those_of_spark() -> None:
    made = spec("day(at)", "bucket(16, text)", "truncate(4, text)", "number", "who.city", "month(who.since)")
    assert [(field.source_id, field.field_id, str(field.transform), field.name) for field in made.fields] == [
        (4, 1000, "day", "at_day"),
        (1, 1001, "bucket[16]", "text_bucket"),
        (1, 1002, "truncate[4]", "text_trunc"),
        (2, 1003, "identity", "number"),
        (12, 1004, "identity", "who.city"),
        (13, 1005, "month", "who.since_month"),
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
    ("text", "said"),
    [
        ("day(text)", "'day(text)': day does not take a string"),
        ("hour(day)", "hour does not take a date"),
        ("year(number)", "year does not take a int"),
        ("bucket(4, real)", "bucket does not take a double"),
        ("bucket(4, flag)", "bucket does not take a boolean"),
        ("truncate(4, at)", "truncate does not take a timestamp"),
        ("truncate(4, day)", "truncate does not take a date"),
        ("who", "'who' is a struct"),
        ("tags", "'tags' is a list"),
        ("tags.element", "lies in a list or a map"),
        ("lines.element.sku", "lies in a list or a map"),
        ("map.value", "lies in a list or a map"),
        ("day(missing)", "'missing', which the schema does not have; it has text"),
        ("day(AT)", "did you mean 'at'?"),
        ("day(taken)", "exists in schema: taken_day"),
    ],
)
def test_the_error_names_the_expression(text: str, said: str) -> None:
    with pytest.raises(PartitionSpecError) as told:
        spec(text)
    assert text in str(told.value)
    assert said in str(told.value)


@pytest.mark.parametrize(
    "texts",
    [("day(at)", "day(at)"), ("day(at)", "hour(at)"), ("text", "text"), ("bucket(4, text)", "bucket(8, text)")],
)
def test_two_fields_that_say_the_same_are_refused(texts: tuple[str, str]) -> None:
    with pytest.raises(PartitionSpecError, match=texts[1].split("(")[0]):
        spec(*texts)


@pytest.mark.parametrize("transform", ["bucket", "truncate"])
@pytest.mark.parametrize("number", [None, 0, -1])
def test_a_number_is_needed(transform: str, number: int | None) -> None:
    with pytest.raises(PartitionSpecError, match="1 or more"):
        partition_spec([PartitionExpr(transform, "text", number)], SCHEMA)  # pyright: ignore[reportArgumentType]
