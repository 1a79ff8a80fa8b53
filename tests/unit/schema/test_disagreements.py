"""Whether a declared record fits a table that exists."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.schema.compatibility import disagreements
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS, KafkaColumns
from jobs.schema.parser import parse_schema

EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def kafka(on: bool) -> KafkaColumns:
    return KAFKA_COLUMNS if on else NO_KAFKA_COLUMNS


def table(text: str, *, kafka_columns: bool = False) -> Schema:
    rows = iceberg_schema(parse_schema(text))
    return kafka(kafka_columns).added_to(rows)


def found(declared: str, schema: Schema, *, kafka_columns: bool = False) -> list[str]:
    return disagreements(table(declared), schema, kafka(kafka_columns))


@pytest.mark.parametrize("kafka_columns", [True, False])
def test_a_record_fits_the_table_made_for_it(kafka_columns: bool) -> None:
    assert found(EVERYTHING, table(EVERYTHING, kafka_columns=kafka_columns), kafka_columns=kafka_columns) == []


@pytest.mark.parametrize(
    ("declared", "existing"),
    [
        ("v int", "v long"),
        ("v float", "v double"),
        ("v decimal(10,2)", "v decimal(12,2)"),
        ("v decimal(10,2)", "v decimal(12,4)"),
        ("v int not null", "v int"),
        ("v int", "other string, v int"),
        ("v list<int not null>", "v list<long>"),
        ("v timestamptz as epoch_ms", "v timestamptz"),
        ("v struct<a int>", "v struct<b int, a long>"),
    ],
)
def test_a_table_may_be_wider(declared: str, existing: str) -> None:
    assert found(declared, table(existing)) == []


@pytest.mark.parametrize(
    ("declared", "existing", "sentence"),
    [
        ("v int", "w int", "Column v is declared, but the table has no such column."),
        ("v int", "V int", "Column v is declared, but the table calls it V: names differ by case."),
        ("v long", "v int", "Column v is declared as long, but it is int in the table."),
        ("v double", "v float", "Column v is declared as double, but it is float in the table."),
        ("v int", "v double", "Column v is declared as int, but it is double in the table."),
        ("v decimal(10,2)", "v decimal(10,4)", "Column v is declared as decimal(10,2), but it is decimal(10,4)"),
        ("v decimal(10,2)", "v decimal(12,1)", "Column v is declared as decimal(10,2), but it is decimal(12,1)"),
        ("v timestamp", "v timestamptz", "Column v is declared as timestamp, but it is timestamptz in the table."),
        ("v string", "v struct<a int>", "Column v is declared as string, but it is struct<"),
        ("v list<int>", "v int", "Column v is declared as list<int>, but it is int in the table."),
        ("v int", "v int not null", "Column v is required in the table, but declared without 'not null'."),
        ("v int", "v int, w int not null", "Column w is required by the table, but it is not declared."),
        ("v struct<a int>", "v struct<a int, b int not null>", "Column v.b is required by the table"),
        ("v list<struct<a long>>", "v list<struct<a int>>", "Column v.element.a is declared as long"),
        ("v list<int>", "v list<int not null>", "Column v.element is required in the table"),
        ("v map<string, long>", "v map<string, int>", "Column v.value is declared as long"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(declared: str, existing: str, sentence: str) -> None:
    (reason,) = found(declared, table(existing))
    assert reason.startswith(sentence)


def test_kafka_columns_must_be_there_and_hold_their_values() -> None:
    missing = found("v int", table("v int"), kafka_columns=True)
    assert len(missing) == 4 and "no column _kafka_topic" in missing[0]
    columns = [ice.NestedField(1, "v", ice.IntegerType())]
    columns += [ice.NestedField(2 + n, name, ice.StringType()) for n, (_, name) in enumerate(KAFKA_COLUMNS.columns)]
    wrong = found("v int", Schema(*columns), kafka_columns=True)
    assert wrong[0] == "Column _kafka_partition is string in the table, where int is needed." and len(wrong) == 3


def test_required_kafka_columns_are_filled_only_if_they_are_on() -> None:
    columns = [ice.NestedField(1, "v", ice.IntegerType())]
    columns += [ice.NestedField(2 + n, e.name, e.type, required=True) for n, e in enumerate(KAFKA_COLUMNS.columns)]
    assert found("v int", Schema(*columns), kafka_columns=True) == []
    assert len(found("v int", Schema(*columns))) == 4


def test_every_reason_is_given() -> None:
    assert len(found("a int, b long, c string", table("A int, b int, d int not null"))) == 4
