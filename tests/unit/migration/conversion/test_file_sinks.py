"""S3 and HDFS sinks: folders become partitions, files become batches."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.conversion.draft import Draft
from jobs.migration.conversion.file_sinks import convert_aiven_s3_sink, convert_storage_sink
from tests.unit.migration.conversion.drafts import connector_of, converted

S3 = "io.confluent.connect.s3.S3SinkConnector"
PARTITIONER = "io.confluent.connect.storage.partitioner."
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "topics": "door.logs",
}


def storage(keys: dict[str, str]) -> Draft:
    return converted(convert_storage_sink, connector_of(S3, JSON | keys, "door-logs"))


def the_stream(draft: Draft) -> dict[str, Any]:
    (stream,) = draft.streams
    return stream


def headings(draft: Draft) -> dict[str, KeyClass]:
    for key in list(draft.keys.unanswered()):
        draft.keys.no_effect(key, "left")
    return {answer.key: answer.heading for answer in draft.keys.answers()}


def test_asks_for_what_such_a_sink_does_not_have() -> None:
    draft = storage({})

    asked = " ".join(question.text for question in draft.questions)
    assert "name" in asked
    assert "catalog" in asked
    assert "connect-door-logs" in asked
    assert "History" in asked
    assert any(question.blocks for question in draft.questions)
    assert draft.takeover is not None
    assert draft.takeover.group == "connect-door-logs"


@pytest.mark.parametrize(
    ("keys", "every"),
    [
        ({"rotate.interval.ms": "300000"}, "5m"),
        ({"rotate.schedule.interval.ms": "900000", "rotate.interval.ms": "60000"}, "1m"),
        ({"flush.size": "10"}, None),
    ],
)
def test_rotation_by_time_is_the_trigger(keys: dict[str, str], every: str | None) -> None:
    draft = storage(keys)

    assert the_stream(draft).get("trigger") == (None if every is None else {"every": every})
    assert {headings(draft)[key] for key in keys} == {KeyClass.APPROXIMATED}


def test_a_partitioner_of_ones_own_is_left_to_a_person() -> None:
    draft = storage({"partitioner.class": "example.ByMoon", "path.format": "YYYY"})

    assert headings(draft)["partitioner.class"] is KeyClass.DECIDE
    assert headings(draft)["path.format"] is KeyClass.NOT_NEEDED
    assert any("partitioner.class" in question.text and question.blocks for question in draft.questions)


def test_a_time_that_records_carry_has_to_be_a_timestamp() -> None:
    draft = storage(
        {
            "partitioner.class": f"{PARTITIONER}HourlyPartitioner",
            "timestamp.extractor": "RecordField",
            "timestamp.field": "opened",
        }
    )

    assert the_stream(draft)["table"]["partition_by"] == ["hour(opened)"]
    assert any("opened" in question.text for question in draft.questions)


def test_the_time_of_writing_becomes_that_of_the_record() -> None:
    draft = storage({"partitioner.class": f"{PARTITIONER}DailyPartitioner", "timezone": "Asia/Tokyo"})

    assert the_stream(draft)["table"]["partition_by"] == ["day(_kafka_timestamp)"]
    assert [default.key for default in draft.defaults if default.key == "timestamp.extractor"]
    assert headings(draft)["timezone"] is KeyClass.APPROXIMATED


def test_several_topics_have_a_table_each() -> None:
    route = the_stream(storage({"topics": "door.logs,lamps"}))["route"]
    assert [entry["table"] for entry in route["tables"]] == ["door.logs", "raw.lamps"]

    stream = the_stream(converted(convert_storage_sink, connector_of(S3, {"topics.regex": r"door\..*"}, "all-doors")))
    assert stream["route"]["to"] == "all_doors.{value}"
    assert stream["table"]["name"].startswith("all_doors.")


def test_keys_and_headers_are_columns() -> None:
    draft = storage({"store.kafka.keys": "true", "store.kafka.headers": "true"})
    assert the_stream(draft)["table"]["kafka_columns"] == {"key": True, "headers": True}

    draft = storage({"store.kafka.keys": "false"})
    assert "kafka_columns" not in the_stream(draft)["table"]


def test_tombstones_that_were_written_cannot_be() -> None:
    assert headings(storage({"behavior.on.null.values": "write"}))["behavior.on.null.values"] is KeyClass.IMPOSSIBLE


def test_hives_database_is_the_proposed_namespace() -> None:
    draft = storage({"hive.integration": "true", "hive.database": "telco", "hive.metastore.uris": "thrift://m:9083"})

    assert the_stream(draft)["table"]["name"] == "telco.door_logs"
    assert headings(draft)["hive.metastore.uris"] is KeyClass.DECIDE
    assert any("telco" in question.text for question in draft.questions)


def test_aivens_template_is_a_partition() -> None:
    keys = {
        "file.name.template": "{{topic}}/{{timestamp:unit=yyyy}}/{{timestamp:unit=dd}}/{{partition}}-{{start_offset}}",
        "format.output.fields": "key,value,headers",
        "timestamp.source": "wallclock",
    }

    draft = converted(convert_aiven_s3_sink, connector_of("AivenKafkaConnectS3SinkConnector", JSON | keys))

    table = the_stream(draft)["table"]
    assert table["partition_by"] == ["day(_kafka_timestamp)"]
    assert table["kafka_columns"] == {"key": True, "headers": True}
    assert headings(draft)["timestamp.source"] is KeyClass.APPROXIMATED
