"""A broker with SASL_SSL: one `kafka.security` block serves Spark's client and librdkafka, or says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from jobs.kafka.metadata import KafkaUnavailableError
from jobs.local_broker.broker import LocalBroker
from jobs.local_broker.config import SecureListener
from jobs.spec.security import librdkafka_options
from tests.helpers.tls import make_tls
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline, payment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

# What a translation into JAAS has to escape (Kafka's own tool cannot store a double quote).
PASSWORD = "p'a\\ss=w;rd"
ADMIN_PASSWORD = "of the administrator"


@pytest.fixture(scope="module")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("secure")
    tls = make_tls(folder)
    with LocalBroker(
        folder / "broker", secure=SecureListener(tls.keystore, {"frazil": PASSWORD, "admin": ADMIN_PASSWORD})
    ) as broker:
        address = broker.status().secure_address
        assert address is not None
        yield address, tls.ca


def secured(pipeline: Pipeline, ca: Path, *, admin: bool = False) -> Pipeline:
    """Give the deployment the security block that a user would write."""
    file = pipeline.home / "frazil.yaml"
    settings: dict[str, Any] = yaml.safe_load(file.read_text())
    settings["kafka"]["request_timeout"] = "5s"
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "frazil",
        "password": "${env:FRAZIL_TEST_PASSWORD}",
        "ca": str(ca),
    }
    settings["kafka"]["security"] = security
    if admin:
        of_admin = security | {"user": "admin", "password": "${env:FRAZIL_TEST_ADMIN}"}
        settings["kafka"]["admin"] = {"security": of_admin}
    file.write_text(yaml.safe_dump(settings))
    return pipeline


def test_drains_over_sasl_ssl(
    secure_broker: tuple[str, Path],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, ca = secure_broker
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    one = secured(Pipeline(tmp_path, address, "over_sasl_ssl"), ca)
    options: dict[str, Any] = {"bootstrap.servers": address, **librdkafka_options(one.settings().kafka.security)}
    admin = AdminClient(options)
    for future in admin.create_topics([NewTopic(one.stream, 2, 1)]).values():
        future.result(30)
    producer = Producer(options)
    for number in range(50):
        producer.produce(one.stream, payment(number, TRUNCATED if number == 7 else GOOD))
    assert producer.flush(30) == 0
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
    secure_broker: tuple[str, Path], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, ca = secure_broker
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", "not the password")
    one = secured(Pipeline(tmp_path, address, "wrong_password"), ca)
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.security") as refused:
        one.drain(spark)
    assert address in str(refused.value)
    assert "not the password" not in str(refused.value)


def test_the_administrator_asks_for_topics_and_the_reader_reads(
    secure_broker: tuple[str, Path], tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, ca = secure_broker
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    monkeypatch.setenv("FRAZIL_TEST_ADMIN", "not the password")
    one = secured(Pipeline(tmp_path, address, "two_users"), ca, admin=True)
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.admin.security"):
        one.drain(spark)
    monkeypatch.setenv("FRAZIL_TEST_ADMIN", ADMIN_PASSWORD)
    options: dict[str, Any] = {"bootstrap.servers": address, **librdkafka_options(one.settings().kafka.admin_security)}
    admin = AdminClient(options)
    admin.create_topics([NewTopic(one.stream, 2, 1)])[one.stream].result(30)
    producer = Producer(options)
    producer.produce(one.stream, payment(1, GOOD))
    assert producer.flush(30) == 0
    assert one.drain(spark).counts.landed == 1
