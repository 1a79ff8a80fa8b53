from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.identifier_fields import (
    identifier_names,
    identifier_problem,
    optional_columns,
    with_identifier_fields,
)
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema

EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def test_a_new_table_has_fresh_ids_and_the_kafka_columns_last() -> None:
    schema = KAFKA_COLUMNS.added_to(
        iceberg_schema(parse_schema("id string not null, o struct<a int not null>, m decimal(12,2)"))
    )
    assert [(one.field_id, one.name, str(one.field_type), one.required) for one in schema.fields] == [
        (1, "id", "string", True),
        (2, "o", "struct<8: a: required int>", False),
        (3, "m", "decimal(12, 2)", False),
        (4, "_kafka_topic", "string", False),
        (5, "_kafka_partition", "int", False),
        (6, "_kafka_offset", "long", False),
        (7, "_kafka_timestamp", "timestamptz", False),
    ]


def test_a_type_in_the_words_of_the_schema() -> None:
    declared = parse_schema(EVERYTHING + ", `a-b` struct<`c d` int>")
    columns = {field.name: schema_text(field.field_type) for field in iceberg_schema(declared).fields}
    assert columns == {field.name: str(field.type) for field in declared.fields}


ARROW_SCHEMA_EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def test_the_arrow_types() -> None:
    assert arrow_schema(parse_schema(ARROW_SCHEMA_EVERYTHING)) == pa.schema(
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


TABLE = (
    "id string not null, n long, at timestamptz not null, f float not null, d double not null, "
    "payer struct<id long not null, name string, home struct<zip string not null>> not null, "
    "other struct<id long not null>, items list<struct<sku string not null> not null> not null, "
    "m map<string, struct<v int not null> not null> not null"
)


def schema(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("id", None),
        ("at", None),
        ("payer.id", None),
        ("n", "'n' may be null"),
        ("f", "'f' is a float"),
        ("d", "'d' is a double"),
        ("payer", "'payer' is no single value"),
        ("payer.name", "'payer.name' may be null"),
        ("payer.home.zip", "'payer.home' may be null"),
        ("other.id", "'other' may be null"),
        ("items", "'items' is no single value"),
        ("items.element.sku", "'items' has no columns within it"),
        ("m.key", "'m' has no columns within it"),
        ("ids", "no column 'ids'; did you mean 'id'?"),
        ("payer.idd", "no column 'payer.idd'; did you mean 'payer.id'?"),
        ("id.x", "'id' has no columns within it"),
    ],
)
def test_what_iceberg_allows(path: str, problem: str | None) -> None:
    rows = schema(TABLE)
    found = identifier_problem(tuple(path.split(".")), rows)
    assert found is None if problem is None else problem in (found or "")
    if problem is None:
        # Iceberg's own model takes it, too.
        assert identifier_names(with_identifier_fields(rows, [path])) == [path]
    elif path in rows._name_to_id:
        with pytest.raises(ValueError, match=r"(?i)identifier field"):
            with_identifier_fields(rows, [path])


def test_columns_are_optional_but_for_identifier_fields_and_what_they_are_in() -> None:
    rows = schema("id long not null, s struct<k int not null, v int not null> not null, l list<int not null> not null")
    made = optional_columns(rows, [("s", "k")])
    assert schema_text(made.as_struct()) == "struct<id long, s struct<k int not null, v int> not null, l list<int>>"
    assert [each.field_id for each in made.fields] == [each.field_id for each in rows.fields]
