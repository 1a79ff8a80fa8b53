"""JDBC sinks: rows that are replaced become mirrors, inserted rows are appended."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.conversion.draft import Draft
from jobs.migration.conversion.jdbc_sink import convert_jdbc_sink
from tests.unit.migration.conversion.drafts import connector_of, converted

CONFLUENT = "io.confluent.connect.jdbc.JdbcSinkConnector"
DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key"}


def sink(keys: dict[str, str], connector_class: str = CONFLUENT) -> Draft:
    common = {"topics": "shop.prices", "key.converter": STRING, "value.converter": JSON}
    given = {key: value for key, value in {**common, **keys}.items() if value}
    return converted(convert_jdbc_sink, connector_of(connector_class, given, "prices"))


def the_stream(draft: Draft) -> dict[str, Any]:
    (stream,) = draft.streams
    return stream


def headings(draft: Draft) -> dict[str, KeyClass]:
    for key in list(draft.keys.unanswered()):
        draft.keys.no_effect(key, "left")
    return {answer.key: answer.heading for answer in draft.keys.answers()}


@pytest.mark.parametrize(
    ("written", "changelog", "mirror"),
    [
        ("dwh.${topic}", "dwh.shop_prices_changes", "dwh.shop_prices"),
        ("dwh.live_${topic}", "dwh.live_shop_prices_changes", "dwh.live_shop_prices"),
        ("dwh.prices", "dwh.prices_changes", "dwh.prices"),
        ("${topic}", "raw.prices_changes", "raw.prices"),
        ("", "raw.prices_changes", "raw.prices"),
        ("prices", "raw.prices_changes", "raw.prices"),
        ("a.b.prices", "a.b.prices_changes", "a.b.prices"),
    ],
)
def test_names_changelog_and_mirror_after_the_sinks_table(written: str, changelog: str, mirror: str) -> None:
    stream = the_stream(sink(UPSERT | {"table.name.format": written}))

    assert stream["table"]["name"] == changelog
    assert stream["mirrors"][0]["table"] == mirror


def test_leaves_names_that_records_decide_to_a_person() -> None:
    draft = sink(UPSERT | {"collection.name.format": "dwh.${source.table}"}, DEBEZIUM)

    assert headings(draft)["collection.name.format"] is KeyClass.DECIDE
    assert the_stream(draft)["mirrors"][0]["table"] == "raw.prices"
    assert any(question.blocks for question in draft.questions)


@pytest.mark.parametrize(
    ("keys", "changes", "mirror"),
    [
        ({"pk.fields": "sku", "delete.enabled": "true"}, {"envelope": "upsert", "key": "sku"}, {}),
        ({"pk.fields": "sku"}, {"envelope": "upsert", "key": "sku"}, {"deletes": "soft"}),
        ({"key.converter": JSON, "pk.fields": "a,b", "delete.enabled": "true"}, {"envelope": "upsert"}, {}),
        (
            {"key.converter": JSON, "pk.mode": "record_value", "pk.fields": "a,b", "delete.enabled": "true"},
            {"envelope": "upsert"},
            {"key": ["a", "b"]},
        ),
    ],
)
def test_takes_the_key_from_where_the_sink_had_it(
    keys: dict[str, str], changes: dict[str, str], mirror: dict[str, Any]
) -> None:
    stream = the_stream(sink(UPSERT | keys))

    assert stream["changes"] == changes
    assert stream["mirrors"] == [{"table": "raw.prices", "every": "60s", **mirror}]
    assert stream["decode"]["key"]["into"] == "_change_key"


def test_asks_whether_columns_of_the_value_are_the_records_key() -> None:
    draft = sink(UPSERT | {"pk.mode": "record_value", "pk.fields": "a,b"})

    assert any("a, b" in question.text and question.blocks for question in draft.questions)


def test_an_unwrapping_transform_is_replaced_by_the_block_changes() -> None:
    draft = sink(
        UPSERT
        | {
            "key.converter": JSON,
            "transforms": "unwrap,rename",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.rename.exclude": "note",
        }
    )

    stream = the_stream(draft)
    assert stream["changes"] == {"envelope": "debezium"}
    assert [step["smt"]["type"].rpartition(".")[2] for step in stream["transform"]] == ["ReplaceField$Value"]


def test_events_of_several_topics_have_a_changelog_each() -> None:
    source = connector_of(POSTGRES, {"topic.prefix": "crm", "table.include.list": "public.a,public.b"}, "source")
    common = {"value.converter": JSON, "key.converter": JSON, "table.name.format": "dwh.${topic}", **UPSERT}

    draft = converted(
        convert_jdbc_sink, connector_of(CONFLUENT, common | {"topics": "crm.public.a,crm.public.b"}), source
    )

    stream = the_stream(draft)
    assert [table["table"] for table in stream["route"]["tables"]] == [
        "c_changes.crm_public_a",
        "c_changes.crm_public_b",
    ]
    assert stream["mirrors"][0]["table"] == "dwh.{table}"
    assert stream["changes"] == {"envelope": "debezium"}


def test_upserts_of_several_topics_have_a_stream_each() -> None:
    draft = sink(UPSERT | {"topics": "shop.prices,shop.stock"})

    assert [stream["stream"] for stream in draft.streams] == ["prices-prices", "prices-stock"]
    assert [stream["source"]["topics"] for stream in draft.streams] == [["shop.prices"], ["shop.stock"]]
    assert all("route" not in stream for stream in draft.streams)


def test_upserts_of_a_pattern_of_topics_are_left_to_a_person() -> None:
    draft = sink(UPSERT | {"topics": "", "topics.regex": r"shop\..*"})

    assert draft.streams == []
    assert any("topics.regex" in question.text and question.blocks for question in draft.questions)


def test_debeziums_sink_takes_events_unless_something_says_else() -> None:
    draft = sink({"insert.mode": "upsert", "primary.key.mode": "record_key", "key.converter": JSON}, DEBEZIUM)

    assert the_stream(draft)["changes"] == {"envelope": "debezium"}
    assert any("No Debezium source" in question.text and question.blocks for question in draft.questions)


def test_updates_alone_are_left_to_a_person() -> None:
    draft = sink(UPSERT | {"insert.mode": "update"})

    assert any(question.text.startswith("insert.mode update") and question.blocks for question in draft.questions)


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ({"pk.mode": "kafka", "pk.fields": "t,p,o"}, {"topic": "t", "partition": "p", "offset": "o"}),
        (
            {"pk.mode": "kafka"},
            {"topic": "__connect_topic", "partition": "__connect_partition", "offset": "__connect_offset"},
        ),
        ({"pk.mode": "none"}, None),
        ({}, None),
    ],
)
def test_inserted_rows_are_appended(keys: dict[str, str], columns: dict[str, str] | None) -> None:
    stream = the_stream(sink(keys))

    assert "changes" not in stream
    assert "mirrors" not in stream
    assert stream["table"].get("kafka_columns") == columns


@pytest.mark.parametrize(
    ("keys", "evolve"),
    [
        ({"auto.evolve": "true"}, None),
        ({"schema.evolution": "basic"}, None),
        ({"auto.evolve": "false"}, {"add": "fail"}),
        ({}, {"add": "fail"}),
    ],
)
def test_new_columns_stop_a_stream_whose_sink_they_stopped(keys: dict[str, str], evolve: dict[str, str] | None) -> None:
    assert the_stream(sink(keys)).get("evolve") == evolve


def test_keeps_the_chosen_columns() -> None:
    draft = sink({"fields.whitelist": "id, at"})

    assert the_stream(draft)["transform"] == [{"keep": ["id", "at"]}]
    assert headings(draft)["fields.whitelist"] is KeyClass.SAME


def test_the_group_of_the_sink_is_its_position() -> None:
    draft = sink({})

    assert draft.takeover is not None
    assert draft.takeover.group == "connect-prices"
    assert draft.takeover.control_topic is None
