# ruff: noqa: E501 (a table reads best with one case a line)
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS
from jobs.schema.parser import parse_schema
from jobs.spec.partitioning import PartitionError, PartitionExpr, parse_partition_expr, partition_problems


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
