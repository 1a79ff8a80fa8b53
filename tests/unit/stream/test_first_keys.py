"""Columns of keys that the first records say: of rows alone, in Connect's envelope or as plain JSON."""

from __future__ import annotations

import pytest

from jobs.commit.offsets import TopicPartition
from jobs.kafka.topic_sample import SampleRecord
from jobs.schema.iceberg_schema import schema_text
from jobs.stream.first_records import key_columns
from tests.debezium.samples import Name, samples


def sample(name: Name, *topics: str) -> list[SampleRecord]:
    return [
        SampleRecord(TopicPartition(each.topic, each.partition), each.offset, each.value, each.key)
        for each in samples(name)
        if each.topic.endswith(topics)
    ]


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
@pytest.mark.parametrize(
    ("table", "columns"),
    [("customers", "struct<id {n} not null>"), ("orders", "struct<region string not null, id long not null>")],
)
def test_the_keys_of_rows_say_it_whatever_else_is_in_the_topic(name: Name, table: str, columns: str) -> None:
    connect = name == "postgresql"
    found = key_columns([sample(name, table, "message", "heartbeat." + name)], connect=connect, events=True)
    assert found is not None
    # Without a schema nobody knows how large a number may be, and what is always there.
    known = columns.format(n="int") if connect else columns.format(n="long").replace(" not null", "")
    assert schema_text(found.as_struct()) == known


@pytest.mark.parametrize("name", ["postgresql", "schemaless"])
def test_a_table_without_keys_says_nothing(name: Name) -> None:
    found = key_columns([sample(name, "visits")], connect=name == "postgresql", events=True)
    assert found is not None and not found.fields
    # Of heartbeats alone nobody can say it, nor beside a key without fields.
    assert key_columns([sample(name, "heartbeat." + name)], connect=name == "postgresql", events=True) is None
    keyed = [each._replace(key=b"1") for each in sample(name, "visits")[:1]]
    assert key_columns([sample(name, "visits"), keyed], connect=name == "postgresql", events=True) is None


def test_of_records_that_are_no_changes_all_keys_count() -> None:
    found = key_columns([sample("schemaless", "customers", "message")], connect=False, events=False)
    assert found is not None
    assert {each.name for each in found.fields} == {"id", "prefix"}
