from __future__ import annotations

from jobs.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.schema.kafka_columns import KAFKA_COLUMNS
from jobs.schema.parser import parse_schema

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
