"""A broker with SASL_SSL: one `kafka.security` block serves Spark's client and librdkafka, or says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer

from jobs.kafka.metadata import KafkaUnavailableError
from jobs.stream.drain import DrainProgress
from jobs.stream.retry import is_unavailable
from tests.helpers.guarded_broker import GuardedBroker, guarded_broker
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline, payment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# What a translation into JAAS has to escape.
PASSWORD = "p'a\\ss=w;\"rd"
ADMIN_PASSWORD = "of the administrator"
CLIENT_SECRET = 'of the client; "quoted" and \\escaped'
TOKEN_SECONDS = 4


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with guarded_broker(tmp_path_factory.mktemp("guarded"), token_seconds=TOKEN_SECONDS) as broker:
        broker.user("frazil", PASSWORD)
        broker.user("admin", ADMIN_PASSWORD)
        broker.tokens.clients["service"] = CLIENT_SECRET
        yield broker


def secured(pipeline: Pipeline, broker: GuardedBroker, *, admin: bool = False, tokens: bool = False) -> Pipeline:
    """Give the deployment the security block that a user would write, and the topic."""
    broker.topic(pipeline.stream)
    scram = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "ca": str(broker.tls.ca)}
    security: dict[str, Any] = scram | {"user": "frazil", "password": "${env:FRAZIL_TEST_PASSWORD}"}
    if tokens:
        oauth = {"token_url": broker.tokens.url, "client_id": "service", "ca": str(broker.tls.ca)}
        oauth |= {"client_secret": "${env:FRAZIL_TEST_CLIENT}", "scope": "kafka"}
        security = {**scram, "mechanism": "OAUTHBEARER", "oauth": oauth}
    file = pipeline.home / "frazil.yaml"
    settings: dict[str, Any] = yaml.safe_load(file.read_text())
    settings["kafka"] |= {"request_timeout": "5s", "security": security}
    if admin:
        of_admin = scram | {"user": "admin", "password": "${env:FRAZIL_TEST_ADMIN}"}
        settings["kafka"]["admin"] = {"security": of_admin}
    file.write_text(yaml.safe_dump(settings))
    return pipeline


def produce(broker: GuardedBroker, topic: str, count: int) -> None:
    """So many payments, of which the eighth is damaged."""
    producer = Producer({"bootstrap.servers": broker.open_address})
    for number in range(count):
        producer.produce(topic, payment(number, TRUNCATED if number == 7 else GOOD))
    assert producer.flush(30) == 0


def test_drains_over_sasl_ssl(
    guarded: GuardedBroker,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    one = secured(Pipeline(tmp_path, guarded.address, "over_sasl_ssl"), guarded)
    # All that whoever reads a stream has to be allowed.
    guarded.allow([("frazil", "READ", f"topic:{one.stream}")])
    produce(guarded, one.stream, 50)
    drained = one.drain(spark)
    assert (drained.counts.landed, drained.counts.dead) == (49, 1)
    said = caplog.text + repr(one.settings()) + str(drained)
    written = "".join(
        file.read_text(errors="replace")
        for file in tmp_path.rglob("*")
        if file.is_file() and file.suffix in {".json", ".yaml", ".avro"}
    )
    assert PASSWORD not in said + written
    assert "p'a" not in said + written


def test_wrong_password_is_named(
    guarded: GuardedBroker, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", "not the password")
    one = secured(Pipeline(tmp_path, guarded.address, "wrong_password"), guarded)
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.security") as refused:
        one.drain(spark)
    assert guarded.address in str(refused.value)
    assert "not the password" not in str(refused.value)


def test_the_administrator_asks_for_topics_and_the_reader_reads(
    guarded: GuardedBroker, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    monkeypatch.setenv("FRAZIL_TEST_ADMIN", "not the password")
    one = secured(Pipeline(tmp_path, guarded.address, "two_users"), guarded, admin=True)
    guarded.allow([("frazil", "READ", f"topic:{one.stream}"), ("admin", "DESCRIBE", f"topic:{one.stream}")])
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.admin.security"):
        one.drain(spark)
    monkeypatch.setenv("FRAZIL_TEST_ADMIN", ADMIN_PASSWORD)
    produce(guarded, one.stream, 1)
    assert one.drain(spark).counts.landed == 1


def test_tokens_are_renewed_while_a_stream_is_drained(
    guarded: GuardedBroker,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_CLIENT", CLIENT_SECRET)
    one = secured(Pipeline(tmp_path, guarded.address, "by_token"), guarded, tokens=True)
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 20})
    guarded.allow([("service", "READ", f"topic:{one.stream}")])
    produce(guarded, one.stream, 60)

    def between_batches(_: DrainProgress) -> None:
        # The broker ends a connection whose token has run out, unless it has shown another one.
        before = guarded.tokens.issued.copy()
        for program in ("java", "librdkafka"):
            who = ("service", program)
            wait_for(lambda who=who: guarded.tokens.issued[who] > before[who], f"another token for {program}", 20)

    drained = one.drain(spark, between_batches)
    assert (drained.counts.landed, drained.counts.dead) == (59, 1)
    assert len(drained.batches) >= 3
    assert "of the client" not in caplog.text + repr(one.settings()) + str(drained)


def test_an_identity_provider_that_is_away_is_waited_for_and_one_that_refuses_is_not(
    guarded: GuardedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_CLIENT", CLIENT_SECRET)
    one = secured(Pipeline(tmp_path, guarded.address, "no_token"), guarded, tokens=True)
    monkeypatch.setattr(guarded.tokens, "away", True)
    with pytest.raises(KafkaUnavailableError, match=r"that https://127\S+ issues tokens") as away:
        one.kafka().topics(one.spec().source)
    assert is_unavailable(away.value)
    monkeypatch.setattr(guarded.tokens, "away", False)
    monkeypatch.setenv("FRAZIL_TEST_CLIENT", "another")
    with pytest.raises(KafkaUnavailableError, match=r"(?s)invalid_client.*check kafka.security") as refused:
        one.kafka().topics(one.spec().source)
    assert not is_unavailable(refused.value)
