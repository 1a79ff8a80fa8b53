"""Table of Kafka Connect's keys: one answer for each, and misspelt ones are told apart from right ones."""

from __future__ import annotations

import re

import pytest

from jobs.config.documents.connect_keys import (
    ConnectKey,
    connect_answer,
    connect_keys,
    find_key,
    nearest_key,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("task.max", "tasks.max"),
        ("iceberg.control.commit.interval.ms", "iceberg.control.commit.interval-ms"),
        ("iceberg.control-topic", "iceberg.control.topic"),
        ("iceberg.tables.auto-create-enable", "iceberg.tables.auto-create-enabled"),
        ("iceberg.tables.evolveSchemaEnable", "iceberg.tables.evolve-schema-enabled"),
        ("iceberg.table.shop.orders.route-regexp", "iceberg.table.shop.orders.route-regex"),
        ("errors.dead.letter.queue.topic.name", "errors.deadletterqueue.topic.name"),
        ("errors.deadletterqueue.topic.names", "errors.deadletterqueue.topic.name"),
        ("value.converter.schema.enable", "value.converter.schemas.enable"),
        ("iceberg.tables.format-version", None),
        ("iceberg.tables.cdc-field", None),
        ("my.own.note", None),
    ],
)
def test_a_misspelt_key_is_brought_to_the_nearest_one(written: str, meant: str | None) -> None:
    assert nearest_key(written) == meant


def test_a_misspelt_key_does_not_get_the_answer_of_the_right_one() -> None:
    answer = connect_answer("", "iceberg.control.commit.interval.ms")
    assert answer is not None
    assert answer.startswith(
        "is read by no connector; it may mean iceberg.control.commit.interval-ms, which is trigger"
    )


@pytest.mark.parametrize("key", ["iceberg.tables.upsert-mode-enabled", "iceberg.tables.cdc-field"])
def test_rows_that_are_replaced_lead_to_mirrors(key: str) -> None:
    answer = connect_answer("", key)
    assert answer is not None
    assert "mirror" in answer
    assert "no counterpart" not in answer


@pytest.mark.parametrize("key", ["fetch.min.bytes", "fetch.max.wait.ms", "client.rack", "max.partition.fetch.bytes"])
def test_options_of_a_consumer_are_options_of_the_source(key: str) -> None:
    assert "is source.options" in (connect_answer("", f"consumer.override.{key}") or "")


def test_dynamic_tables_are_a_route_with_names_by_values() -> None:
    assert "route.to" in (connect_answer("", "iceberg.tables.dynamic-enabled") or "")


def test_keys_of_workers_and_resources_are_no_keys_of_a_stream() -> None:
    assert find_key("group.id") is not None
    assert connect_answer("", "group.id") is None
    assert connect_answer("group", "id") is None
    assert connect_answer("metrics", "foldr") is None
    assert connect_answer("spec", "replicas") is None


@pytest.mark.parametrize("entry", connect_keys(), ids=lambda entry: entry.key)
def test_an_entry_takes_the_keys_that_it_spells(entry: ConnectKey) -> None:
    assert re.match(r"(is|has) ", entry.says)
    assert not entry.says.endswith(".")
    for key in entry.spelled():
        found = find_key(key, entry.of)
        assert found is entry, f"{key} is taken by {found}"
        assert nearest_key(key) is None


def test_no_entry_stands_twice() -> None:
    keys = [entry.key for entry in connect_keys()]
    assert len(keys) == len(set(keys))
    assert len(keys) > 100


def test_keys_of_other_sinks_are_answered_at_the_top_of_a_file_alone() -> None:
    assert "trigger" in (connect_answer("", "rotate.schedule.interval.ms") or "")
    assert "mirrors" in (connect_answer("", "insert.mode") or "")
    assert connect_answer("event_time", "timezone") is None
    assert connect_answer("", "timezone") is None
    assert find_key("flush.size", "connector") is None
    assert find_key("flush.size", "connector", "files") is not None
