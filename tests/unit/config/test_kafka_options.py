"""Options of Kafka's clients: which are taken, which are refused and why, and that the clients take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from jobs.base.errors import FrazilError
from jobs.clients.kafka.consumer import consumer_options
from jobs.config.documents.validation import SpecError
from jobs.config.services.kafka_options import (
    KNOWN,
    connection_options,
    planner_options,
    reading_options,
)
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import KafkaSettings, load_settings, secret_references
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.process.query import kafka_source_options

STREAM: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {"value": "json", "schema": "id string"},
    "table": {"name": "orders.payments"},
}


def stream_with(**options: Any) -> StreamSpec:
    return StreamSpec.model_validate({**STREAM, "source": {"topics": ["payments"], "options": options}})


def problems_of(home: Path, key: str, value: str) -> str:
    (home / "frazil.yaml").write_text(f"kafka:\n  bootstrap_servers: b:1\n  options:\n    {key}: {value}\n")
    with pytest.raises(SpecError) as refused:
        load_settings(None, home=home)
    (problem,) = refused.value.problems
    assert "frazil.yaml:4:5: kafka.options." in problem
    return problem


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("group.id", "mine", "source.group"),
        ("auto.offset.reset", "latest", "source.start"),
        ("enable.auto.commit", "true", "tables' own snapshots"),
        ("isolation.level", "read_committed", "kafka.isolation"),
        ("bootstrap.servers", "b:1", "kafka.bootstrap_servers"),
        ("socket.timeout.ms", "5", "kafka.request_timeout"),
        ("security.protocol", "SSL", "kafka.security"),
        ("sasl.password", "hunter2", "kafka.security"),
        ("ssl.ca.location", "/ca", "kafka.security"),
        ("session.timeout.ms", "5", "no consumer group is joined"),
        ("max.poll.records", "5", "source.max_records_per_batch"),
        ("check.crcs", "false", "frazil checks"),
        ("kafka.client.id", "a", "without the kafka."),
        ("fetch.max.wait.ms", "5", "is fetch.wait.max.ms here"),
        ("fetch.min.byte", "5", "did you mean 'fetch.min.bytes'?"),
        ("Client.Rack", "a", "did you mean 'client.rack'?"),
        ("colour", "red", "may set; known: "),
        ("client.rack", "a b", "letters, digits"),
        ("client.id", "${env:X}", "secrets have no place"),
        ("socket.keepalive.enable", "'yes'", "true or false"),
        ("broker.address.family", "v5", "one of any, v4, v6"),
        ("fetch.min.bytes", "true", "whole number"),
        ("fetch.min.bytes", "64KB", "whole number"),
        ("fetch.min.bytes", "5000000", "above fetch.max.bytes"),
        ("fetch.wait.max.ms", "5001", "0 to 5000"),
        ("reconnect.backoff.ms", "20000", "above reconnect.backoff.max.ms"),
        ("receive.message.max.bytes", "2000000", "at least fetch.max.bytes"),
        ("default.api.timeout.ms", "20000", "below request.timeout.ms (30000)"),
    ],
)
def test_what_is_refused_is_told_with_its_line_and_reason(tmp_path: Path, key: str, value: str, said: str) -> None:
    problem = problems_of(tmp_path, key, value)
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("name", [name for name, option in KNOWN.items() if option.kind == "number"])
def test_bounds_are_those_that_the_page_says_and_that_the_clients_take(name: str) -> None:
    least, most = KNOWN[name].bounds
    page = (Path(__file__).parents[3] / "docs" / "reference" / "kafka-options.md").read_text()
    assert f"| `{name}` | {least} to {most} |" in page
    for value in (least, most):
        # What goes with it, so that the two agree.
        beside = {
            "reconnect.backoff.ms": {"reconnect.backoff.max.ms": 60_000},
            "reconnect.backoff.max.ms": {"reconnect.backoff.ms": 0},
            "receive.message.max.bytes": {"fetch.max.bytes": 1_000_000},
            "retry.backoff.max.ms": {"retry.backoff.ms": 1},
            "fetch.min.bytes": {"fetch.max.bytes": 100_000_000},
            "default.api.timeout.ms": {"request.timeout.ms": 1000},
        }
        kafka = KafkaSettings.model_validate(
            {"bootstrap_servers": "127.0.0.1:1", "options": {name: value, **beside.get(name, {})}}
        )
        Consumer(consumer_options(kafka, "s")).close()
        AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **connection_options(kafka.options)})
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=f"must be {least} to {most}"):
            KafkaSettings.model_validate({"options": {name: value}})


@pytest.mark.parametrize("name", [name for name, option in KNOWN.items() if option.kind != "number"])
def test_words_are_on_the_page_and_the_clients_take_them(name: str) -> None:
    option = KNOWN[name]
    page = (Path(__file__).parents[3] / "docs" / "reference" / "kafka-options.md").read_text()
    for value in [True, False] if option.kind == "flag" else option.words or ("eu-1",):
        assert f"| `{name}` |" in page
        Consumer(consumer_options(KafkaSettings(bootstrap_servers="127.0.0.1:1", options={name: value}), "s")).close()


def test_each_client_gets_what_concerns_it() -> None:
    kafka = KafkaSettings(bootstrap_servers="b:1", options={"client.rack": "a", "client.id": "lake"})
    spec = stream_with(**{"client.rack": "b", "max.partition.fetch.bytes": 2048, "request.timeout.ms": 5000})
    together = kafka.with_options(spec.source.options)
    reader = consumer_options(together, "payments")
    assert (reader["client.rack"], reader["client.id"], reader["fetch.message.max.bytes"]) == ("b", "lake", 2048)
    assert (reader["group.id"], reader["auto.offset.reset"]) == ("frazil-payments", "error")
    assert not {"max.partition.fetch.bytes", "request.timeout.ms"} & set(reader)
    assert connection_options(together.options) == {"client.id": "lake"}
    assert set(reading_options(together.options)) == {"client.id", "client.rack", "fetch.message.max.bytes"}
    assert planner_options(together.options, "payments") == {
        "client.id": "lake-planner-payments",
        "request.timeout.ms": "5000",
    }
    planned = kafka_source_options(spec, kafka, {}, ["payments"], drain=True)
    assert (planned["kafka.client.id"], planned["kafka.request.timeout.ms"]) == ("lake-planner-payments", "5000")
    assert "kafka.client.rack" not in planned


def test_files_that_disagree_are_named() -> None:
    kafka = KafkaSettings(bootstrap_servers="b:1", options={"reconnect.backoff.max.ms": 500})
    with pytest.raises(FrazilError, match=r"disagree: reconnect.backoff.ms: .*\(5000\) is above .*\(500\)"):
        kafka.with_options({"reconnect.backoff.ms": 5000})


def test_drivers_are_rolled_and_rows_stay(tmp_path: Path) -> None:
    plain, told = stream_with(), stream_with(**{"client.rack": "a"})
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'b:1'}\n")
    settings = load_settings(None, home=tmp_path)
    assert plain.config_hash == told.config_hash == StreamSpec.model_validate(STREAM).config_hash
    assert generation(plain, settings) == generation(StreamSpec.model_validate(STREAM), settings)
    assert generation(plain, settings) != generation(told, settings)
    for more in ("options: {client.rack: a}", "admin: {security: {protocol: SSL}}"):
        (tmp_path / "frazil.yaml").write_text(f"kafka: {{bootstrap_servers: 'b:1', {more}}}\n")
        assert generation(plain, load_settings(None, home=tmp_path)) != generation(plain, settings)


def test_the_administrator_is_another_one_and_redacted(tmp_path: Path) -> None:
    of = "{protocol: SASL_PLAINTEXT, mechanism: PLAIN, user: %s, password: '${env:%s}'}"
    (tmp_path / "frazil.yaml").write_text(
        "kafka:\n  bootstrap_servers: b:1\n"
        f"  security: {of % ('reader', 'READER')}\n  admin:\n    security: {of % ('admin', 'ADMIN')}\n"
    )
    kafka = (settings := load_settings(None, home=tmp_path)).kafka
    assert kafka.security is not None
    assert kafka.admin_security is not None
    assert (kafka.security.user, kafka.admin_security.user) == ("reader", "admin")
    assert {name for secret in secret_references(settings) for name in secret.names} == {"READER", "ADMIN"}
    assert KafkaSettings(security=kafka.security).admin_security == kafka.security
