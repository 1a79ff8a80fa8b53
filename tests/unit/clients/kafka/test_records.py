"""Blocks of records: what is fetched of each, and only where it is asked for."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import numpy as np
from confluent_kafka import Message

from jobs.clients.kafka.records import FetchedBlock, fetched_block, headers_array
from jobs.tables.commit.stamp.offsets import TopicPartition

SOURCE = TopicPartition("t", 0)
USUAL = ["value", "topic", "partition", "offset", "timestamp"]


def fetched(*messages: dict[str, Any], parts: Collection[str] = ()) -> FetchedBlock:
    made = [Message(topic="t", partition=0, offset=n, timestamp=(1, 5), **each) for n, each in enumerate(messages)]
    return fetched_block(SOURCE, made, np.arange(len(made)), frozenset(parts))


def test_keys_and_headers_are_fetched_only_where_they_are_asked_for() -> None:
    message: dict[str, Any] = {"key": b"k", "value": b"v", "headers": [("a", b"1")]}
    assert fetched(message).records.schema.names == USUAL
    assert fetched(message, parts={"key"}).records.schema.names == [*USUAL, "key"]
    whole = fetched(message, parts={"key", "headers", "timestamp_type"})
    assert whole.records.select(["key", "headers", "timestampType"]).to_pylist() == [
        {"key": b"k", "headers": [{"key": "a", "value": b"1"}], "timestampType": 0}
    ]
    assert whole.whole([0]).column("key").to_pylist() == [b"k"]


def test_a_record_without_key_or_headers_has_null_and_an_empty_list() -> None:
    rows = fetched(
        {"value": b"v"},
        {"value": b"v", "key": b"", "headers": [("a", None), ("a", b""), ("ü", b"\xff")]},
        {"value": b"v", "headers": [("b", b"2")]},
        parts={"key", "headers"},
    ).records
    assert rows.column("key").to_pylist() == [None, b"", None]
    assert rows.column("headers").to_pylist() == [
        [],
        [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "ü", "value": b"\xff"}],
        [{"key": "b", "value": b"2"}],
    ]


def test_the_ids_of_writer_schemas_are_taken_from_the_last_header_of_the_name() -> None:
    parts = {"value_schema_id", "key_schema_id"}
    rows = fetched(
        {"value": b"v"},
        {"value": b"v", "headers": [("__value_schema_id", b"1"), ("__value_schema_id", b"2"), ("a", b"3")]},
        {"value": b"v", "headers": [("__key_schema_id", None), ("__Value_schema_id", b"4")]},
        parts=parts,
    ).records
    assert rows.column("value_schema_id").to_pylist() == [None, b"2", None]
    assert rows.column("key_schema_id").to_pylist() == [None, None, b""]
    assert fetched({"value": b"v"}, parts=parts).records.column("value_schema_id").to_pylist() == [None]


def test_headers_that_could_not_be_read_are_null() -> None:
    assert headers_array([(), None, [("a", b"1")]]).to_pylist() == [[], None, [{"key": "a", "value": b"1"}]]
    assert headers_array([]).to_pylist() == []


def test_a_time_beyond_the_year_9999_is_none() -> None:
    """Producers have given microseconds for milliseconds; Python and other readers have no such times."""
    given = [253_402_300_799_999, 253_402_300_800_000, 1_731_508_712_229_224, 2**63 - 1]
    messages = [Message(topic="t", partition=0, offset=n, timestamp=(1, at)) for n, at in enumerate(given)]
    block = fetched_block(SOURCE, messages, np.arange(len(messages)), frozenset({"timestamp_type"}))
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    for found in (block.records, block.whole(range(len(messages)))):
        assert found.column("timestamp").to_pylist() == [last, None, None, None]
        assert found.column("timestampType").to_pylist() == [0] * 4
