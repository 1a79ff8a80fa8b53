"""Kafka's columns in a stream's file: on, off, or by names; and what depends on them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jobs.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS, KafkaColumns
from jobs.spec.models import StreamSpec

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
    assert [each.split(";")[0] for each in lacking] == ["The table has no column k", "The table has no column h"]
    other = stream({"topic": "h", "key": "k"}).table_schema
    assert "Column h is string in the table, where list<struct<key string, value binary>> is needed." in (
        spec.disagreements_with(other)
    )


def test_the_rows_of_the_value_are_without_them() -> None:
    spec = stream({"topic": "src", "key": True})
    assert spec.resolved_for(spec.table_schema).schema.column_names == ["id"]
