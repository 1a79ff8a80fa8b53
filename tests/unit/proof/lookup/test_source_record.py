"""The record itself in Kafka: the command that reads it back, and whether Kafka still has it."""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.clients.kafka.metadata import LogEnds
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source
from jobs.proof.lookup.source_record import SourceLogs, read_command, source_logs
from jobs.tables.commit.stamp.offsets import TopicPartition

AT = TopicPartition("payments", 3)
PLAIN = KafkaSettings(bootstrap_servers="one:9092,two:9092")


def test_the_command_names_the_record_exactly_and_no_secret() -> None:
    told = shlex.split(read_command(PLAIN, AT, 59))
    assert told[:14] == [
        *("kcat", "-C", "-e", "-q", "-b", "one:9092,two:9092"),
        *("-t", "payments", "-p", "3", "-o", "59", "-c", "1"),
    ]
    # The offset that was read is part of what it prints: a compacted topic gives the next one.
    assert told[14] == "-f" and told[15].startswith("offset %o, ") and told[15].endswith("%k\\n%s\\n")
    security = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "me", "password": "${env:KAFKA_PASSWORD}"}
    secured = KafkaSettings.model_validate({"bootstrap_servers": "one:9092", "security": security})
    command = read_command(secured, AT, 59)
    assert "-F kcat.conf -b one:9092" in command and "PASSWORD" not in command


def test_without_a_broker_it_is_told_why_and_the_command_has_a_gap(tmp_path: Path) -> None:
    down: dict[str, Any] = {"address_file": tmp_path / "nothing"}
    settings = KafkaSettings(bootstrap_servers="one:9092").model_copy(update=down)
    logs = source_logs(settings, [AT])
    found = logs.record(AT, 59)
    assert (found.state, found.why) == ("unknown", "The local broker is not running.")
    assert shlex.split(found.command)[5] == "HOST:PORT"


def test_brokers_that_do_not_answer_are_no_error() -> None:
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout=timedelta(seconds=1))
    logs = source_logs(settings, [AT])
    assert logs.record(AT, 59).state == "unknown" and "127.0.0.1:1" in logs.why


@pytest.mark.parametrize(
    ("offset", "another", "state"),
    [(5, False, "removed"), (6, False, "kept"), (9, False, "kept"), (10, False, "not written"), (6, True, "another")],
)
def test_what_has_become_of_it(offset: int, another: bool, state: str) -> None:
    found = SourceLogs(PLAIN, {AT: (6, 10)}).record(AT, offset, another=another)
    assert (found.state, found.first, found.end) == (state, 6, 10)


class FourPartitions:
    """Kafka with a topic of four partitions."""

    def topics(self, source: Source) -> dict[str, list[int]]:
        return {"payments": [0, 1, 2, 3]} if source.reads("payments") else {}

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        assert all(each.partition < 4 for each in partitions)
        return dict.fromkeys(partitions, 6)

    def ends(self, partitions: list[TopicPartition]) -> LogEnds:
        ends = dict.fromkeys(partitions, 10)
        return LogEnds(ends, ends, {})


def test_a_partition_that_the_topic_does_not_have_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.proof.lookup.source_record.quick_kafka", lambda _: FourPartitions())
    absent = TopicPartition("payments", 77)
    logs = source_logs(PLAIN, [absent, AT])
    found = logs.record(absent, 0)
    assert (found.state, found.why) == ("not written", "topic payments has 4 partitions, 0 to 3")
    assert logs.record(AT, 7).state == "kept" and not logs.why
    assert source_logs(PLAIN, [absent]).record(absent, 0).state == "not written"


def test_of_a_topic_that_shows_no_partition_kafka_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FourPartitions()
    monkeypatch.setattr(kafka, "topics", lambda _: {"payments": []})
    monkeypatch.setattr("jobs.proof.lookup.source_record.quick_kafka", lambda _: kafka)
    assert source_logs(PLAIN, [AT]).record(AT, 7).state == "kept"
