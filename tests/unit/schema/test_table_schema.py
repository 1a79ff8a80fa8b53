"""A declared record as Arrow and Iceberg see it, and whether it fits a table that exists."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.schema.declared import parse_schema
from jobs.schema.table_schema import KAFKA_COLUMNS, arrow_schema, disagreements, iceberg_schema

EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def table(text: str, *, kafka_columns: bool = False) -> Schema:
    return iceberg_schema(parse_schema(text), kafka_columns=kafka_columns)


def found(declared: str, schema: Schema, *, kafka_columns: bool = False) -> list[str]:
    return disagreements(parse_schema(declared), schema, kafka_columns=kafka_columns)


def test_the_arrow_types() -> None:
    assert arrow_schema(parse_schema(EVERYTHING)) == pa.schema(
        [
            pa.field("b", pa.bool_()),
            pa.field("i", pa.int32(), nullable=False),
            pa.field("l", pa.int64()),
            pa.field("f", pa.float32()),
            pa.field("d", pa.float64()),
            pa.field("m", pa.decimal128(12, 2)),
            pa.field("day", pa.date32()),
            pa.field("t", pa.timestamp("us")),
            pa.field("z", pa.timestamp("us", tz="UTC")),
            pa.field("s", pa.string()),
            pa.field("x", pa.binary()),
            pa.field(
                "o",
                pa.struct(
                    [
                        pa.field("a", pa.int32(), nullable=False),
                        pa.field("n", pa.list_(pa.field("element", pa.int64(), nullable=False))),
                    ]
                ),
            ),
            pa.field(
                "k",
                pa.map_(pa.string(), pa.field("value", pa.struct([pa.field("q", pa.date32())]), nullable=False)),
            ),
        ]
    )


def test_a_new_table_has_fresh_ids_and_the_kafka_columns_last() -> None:
    schema = table("id string not null, o struct<a int not null>, m decimal(12,2)", kafka_columns=True)
    assert [(one.field_id, one.name, str(one.field_type), one.required) for one in schema.fields] == [
        (1, "id", "string", True),
        (2, "o", "struct<8: a: required int>", False),
        (3, "m", "decimal(12, 2)", False),
        (4, "_kafka_topic", "string", False),
        (5, "_kafka_partition", "int", False),
        (6, "_kafka_offset", "long", False),
        (7, "_kafka_timestamp", "timestamptz", False),
    ]


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
        ("v decimal(10,2)", "v decimal(10,4)", "Column v is declared as decimal(10,2), but it is decimal(10, 4)"),
        ("v decimal(10,2)", "v decimal(12,1)", "Column v is declared as decimal(10,2), but it is decimal(12, 1)"),
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
    columns += [ice.NestedField(2 + n, name, ice.StringType()) for n, (name, _) in enumerate(KAFKA_COLUMNS)]
    wrong = found("v int", Schema(*columns), kafka_columns=True)
    assert wrong[0] == "Column _kafka_partition is string in the table, where int is needed." and len(wrong) == 3


def test_required_kafka_columns_are_filled_only_if_they_are_on() -> None:
    columns = [ice.NestedField(1, "v", ice.IntegerType())]
    columns += [ice.NestedField(2 + n, name, kind, required=True) for n, (name, kind) in enumerate(KAFKA_COLUMNS)]
    assert found("v int", Schema(*columns), kafka_columns=True) == []
    assert len(found("v int", Schema(*columns))) == 4


def test_every_reason_is_given() -> None:
    assert len(found("a int, b long, c string", table("A int, b int, d int not null"))) == 4
