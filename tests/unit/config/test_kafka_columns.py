"""Kafka's columns in a stream's file: on, off, or by names; and what depends on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs.config.stream.models import StreamSpec
from jobs.config.values.partitioning import (
    PartitionError,
    PartitionExpr,
    parse_partition_expr,
    partition_problems,
)
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS, KafkaColumns
from jobs.records.schema.parser import parse_schema

USUAL = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp")


def stream(kafka_columns: Any, schema: str = "id string", **table: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "s",
            "source": {"topics": ["t"]},
            "decode": {"value": "json", "schema": schema},
            "table": {"name": "a.b", "kafka_columns": kafka_columns, **table},
        }
    )


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (True, KAFKA_COLUMNS),
        (False, NO_KAFKA_COLUMNS),
        ({}, KAFKA_COLUMNS),
        ({"topic": True, "key": False}, KAFKA_COLUMNS),
        (dict.fromkeys(("topic", "partition", "offset", "timestamp"), False), NO_KAFKA_COLUMNS),
        ({"topic": "src"}, KafkaColumns(topic="src")),
        ({"timestamp": False}, KafkaColumns(timestamp=None)),
        (
            {"key": True, "headers": "h", "timestamp_type": True},
            KafkaColumns(key="_kafka_key", headers="h", timestamp_type="_kafka_timestamp_type"),
        ),
    ],
)
def test_they_are_on_or_off_or_named(given: Any, columns: KafkaColumns) -> None:
    spec = stream(given)
    assert spec.kafka_columns == columns
    assert set(spec.table_schema.column_names) >= {"id", *columns.names}
    assert StreamSpec.model_validate(spec.model_dump(mode="json")).kafka_columns == columns


def test_what_names_say_as_true_or_false_has_the_same_hash() -> None:
    off = dict.fromkeys(("topic", "partition", "offset", "timestamp"), False)
    assert stream({}).config_hash == stream(True).config_hash
    assert stream(off).config_hash == stream(False).config_hash
    hashes = {stream(each).config_hash for each in (True, False, {"topic": "x"}, {"key": True}, {"key": "k"})}
    assert len(hashes) == 5


def test_the_table_has_them_last_in_one_order() -> None:
    spec = stream({"headers": True, "key": "k", "offset": "o"})
    assert [(field.name, str(field.field_type), field.required) for field in spec.table_schema.fields][1:] == [
        ("_kafka_topic", "string", False),
        ("_kafka_partition", "int", False),
        ("o", "long", False),
        ("_kafka_timestamp", "timestamptz", False),
        ("k", "binary", False),
        ("_kafka_headers", "list<struct<9: key: optional string, 10: value: optional binary>>", False),
    ]
    ids = [spec.table_schema.find_field(name).field_id for name in spec.table_schema.column_names]
    assert len(set(ids)) == len(ids)


def test_what_says_which_record_a_row_is_of() -> None:
    assert stream(True).kafka_columns.coordinates == USUAL[:3]
    named = stream({"topic": "src", "timestamp": "at"})
    assert named.targets[0].coordinates == ("src", "_kafka_partition", "_kafka_offset")
    assert named.targets[1].coordinates == ("topic", "partition", "offset")
    assert named.kafka_columns.locate_rows_of(named.table_schema)
    assert not named.kafka_columns.locate_rows_of(stream(True).table_schema)
    without = stream({"offset": False})
    assert not without.kafka_columns.locate_rows_of(stream(True).table_schema), "rows do not have it"


@pytest.mark.parametrize(
    ("given", "at", "said"),
    [
        ("yes", ("kafka_columns", "@flag"), "valid boolean"),
        ({"topic": ""}, ("kafka_columns", "@names", "topic"), "name of a column"),
        ({"topics": True}, ("kafka_columns", "@names", "topics"), "not permitted"),
        ({"topic": 3}, ("kafka_columns", "@names", "topic", "@name"), "valid string"),
    ],
)
def test_what_is_no_name_is_refused(given: Any, at: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        stream(given)
    (error,) = refused.value.errors()
    assert error["loc"] == ("table", *at) and said in error["msg"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "x", "key": "X"}, "kafka_columns.key: has the name of 'topic'|key: has the name of 'topic'"),
        ({"topic": "ID"}, "table.kafka_columns.topic: 'id' is a column of decode.schema"),
    ],
)
def test_a_name_stands_once(given: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        stream(given)


def test_partitions_and_tables_know_the_names() -> None:
    assert stream({"timestamp": "at"}, partition_by=["day(at)"]).table.partition_by
    with pytest.raises(ValidationError, match="leaves it out, or gives it another name"):
        stream({"timestamp": "at"}, partition_by=["day(_kafka_timestamp)"])
    spec = stream({"key": "k", "headers": "h"})
    assert spec.disagreements_with(spec.table_schema) == []
    lacking = spec.disagreements_with(stream(True).table_schema)
    assert lacking == ["The table lacks columns that name a row's record: k, h."]
    other = stream({"topic": "h", "key": "k"}).table_schema
    assert "Column h is string in the table, where list<struct<key string, value binary>> is needed." in (
        spec.disagreements_with(other)
    )


def test_the_rows_of_the_value_are_without_them() -> None:
    spec = stream({"topic": "src", "key": True})
    assert spec.resolved_for(spec.table_schema).schema.column_names == ["id"]


# ruff: noqa: E501 (a table reads best with one case a line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type", PartitionExpr("identity", "type")),
        ("identity(type)", PartitionExpr("identity", "type")),
        ("year(created_at)", PartitionExpr("year", "created_at")),
        (" Day ( created_at ) ", PartitionExpr("day", "created_at")),
        ("bucket(16, payer)", PartitionExpr("bucket", "payer", 16)),
        ("bucket(payer, 16)", PartitionExpr("bucket", "payer", 16)),
        ("truncate(1_000, amount)", PartitionExpr("truncate", "amount", 1000)),
        ("hour(payment.at)", PartitionExpr("hour", "payment.at")),
        ("day(`created at`)", PartitionExpr("day", "created at")),
        ("bucket(4, `a,b`.`c``d`)", PartitionExpr("bucket", "a,b.c`d", 4)),
        ("größe", PartitionExpr("identity", "größe")),
        ("day(at) AS at_by_day", PartitionExpr("day", "at", name="at_by_day")),
        ("`a as b`  as `1 c`", PartitionExpr("identity", "a as b", name="1 c")),
        ("bucket(4, `a as b`)", PartitionExpr("bucket", "a as b", 4)),
    ],
)
def test_reads(text: str, expected: PartitionExpr) -> None:
    assert parse_partition_expr(text) == expected
    assert parse_partition_expr(str(expected)) == expected


@given(
    st.sampled_from(["identity", "year", "month", "day", "hour", "bucket", "truncate"]),
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).filter(lambda name: "." not in name),
    st.integers(1, 2**31 - 1),
)
def test_what_is_written_reads_back(transform, column: str, number: int) -> None:
    expression = PartitionExpr(transform, column, number if transform in ("bucket", "truncate") else None)
    assert parse_partition_expr(str(expression)) == expression


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "days(created_at)",
            "unknown transform 'days' in the partition expression 'days(created_at)'; did you mean 'day'?",
        ),
        ("void(a)", "unknown transform 'void'"),
        ("day()", "'day()' needs one column: day(col)"),
        ("day(a, b)", "'day(a, b)' needs one column"),
        ("day(16)", "'day(16)' needs one column"),
        ("bucket(payer)", "'bucket(payer)' needs a number and a column: bucket(16, col)"),
        ("bucket(0, payer)", "the number in the partition expression 'bucket(0, payer)' must be from 1"),
        ("bucket(99999999999, payer)", "must be from 1"),
        ("bucket(-1, payer)", "needs a number and a column"),
        ("truncate(1, 2)", "needs a number and a column"),
        ("", "cannot read the partition expression ''"),
        ("day(created_at", "cannot read"),
        ("created-at", "cannot read"),
        ("a b", "cannot read"),
        ("day(hour(a))", "needs one column"),
    ],
)
def test_refuses_and_names_the_expression(text: str, told: str) -> None:
    with pytest.raises(PartitionError) as error:
        parse_partition_expr(text)
    assert told in str(error.value)
    assert f"'{text}'" in str(error.value)


SCHEMA = "id string not null, amount decimal(12,2), at timestamptz, d date, f double, place struct<city string, geo struct<lat double>>, tags list<string>"


@pytest.mark.parametrize(
    ("expressions", "told"),
    [
        (["day(at)", "bucket(16, id)", "truncate(10, amount)", "place.city", "month(d)"], []),
        (["_kafka_topic", "hour(_kafka_timestamp)"], []),
        (["day(att)"], ["'day(att)': no column 'att' in decode.schema; did you mean 'at'?"]),
        (["AT"], ["'AT': no column 'AT' in decode.schema; did you mean 'at'?"]),
        (["place.cty"], ["did you mean 'place.city'?"]),
        (["zzzzzz"], ["known: id, amount, at"]),
        (["day(id)"], ["day cannot take the column 'id' of type string; it takes date, timestamp, timestamptz"]),
        (["hour(d)"], ["hour cannot take the column 'd' of type date"]),
        (["bucket(4, f)"], ["bucket cannot take the column 'f' of type double"]),
        (["truncate(4, at)"], ["truncate cannot take"]),
        (["place"], ["the column 'place' is not a single value"]),
        (["tags"], ["the column 'tags' is not a single value"]),
        (["tags.element"], ["no column 'tags.element'"]),
        (["day(at)", "hour(at)"], ["'hour(at)' repeats 'day(at)'"]),
        (["id", "id"], ["'id' repeats 'id'"]),
        (["bucket(4, id)", "bucket(8, id)"], ["repeats 'bucket(4, id)'"]),
        (["id", "bucket(8, id)"], []),
        (["day(x)", "place"], ["no column 'x'", "not a single value"]),
    ],
)
def test_checks_against_the_columns(expressions: list[str], told: list[str]) -> None:
    parsed = [parse_partition_expr(text) for text in expressions]
    problems = [
        problem for _, problem in partition_problems(parsed, iceberg_schema(parse_schema(SCHEMA)), KAFKA_COLUMNS)
    ]
    assert len(problems) == len(told)
    for problem, part in zip(problems, told, strict=True):
        assert part in problem


def test_kafka_columns_that_are_off_are_told() -> None:
    expressions = [parse_partition_expr("_kafka_topic")]
    ((index, problem),) = partition_problems(expressions, iceberg_schema(parse_schema("id string")), NO_KAFKA_COLUMNS)
    assert index == 0
    assert "is not written: table.kafka_columns is false" in problem
