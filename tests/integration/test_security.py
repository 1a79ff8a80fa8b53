"""A broker with SASL_SSL: one `kafka.security` block serves Spark's client and librdkafka, or says what is wrong."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.streaming.driver.process.drain import DrainProgress
from orchestration.cli.main import main
from tests.helpers.database_server import PASSWORD as DATABASE_PASSWORD
from tests.helpers.database_server import DatabaseServer
from tests.helpers.guarded_broker import GuardedBroker, guarded_broker
from tests.helpers.object_server import BUCKET, ObjectServer, s3_client
from tests.helpers.registry_server import RegistryServer, serving
from tests.helpers.secret_places import in_bucket, in_database, in_files, shown, watched_arguments
from tests.helpers.tls import CLIENT_PASSWORD
from tests.helpers.topics import messages_of
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline, payment
from tests.integration.secret_stream import ESCAPED as PASSWORD
from tests.integration.secret_stream import LETTERS, SecretStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

CLIENT_SECRET = 'of the client; "quoted" and \\escaped'
TOKEN_SECONDS = 4


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with guarded_broker(tmp_path_factory.mktemp("guarded"), token_seconds=TOKEN_SECONDS) as broker:
        broker.user("frazil", PASSWORD)
        broker.user("admin", "of the administrator")
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
    assert producer.flush(120) == 0


def test_a_certificate_is_a_login(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TEST_KEY", CLIENT_PASSWORD)
    with guarded_broker(tmp_path / "guarded", certificates=True) as broker:
        one = secured(Pipeline(tmp_path, broker.address, "by_certificate"), broker)
        broker.allow([("CN=localhost", "READ", f"topic:{one.stream}")])
        produce(broker, one.stream, 50)
        file = one.home / "frazil.yaml"
        settings = yaml.safe_load(file.read_text())

        def logs_in_with(**security: str) -> None:
            settings["kafka"]["security"] = {"protocol": "SSL", "ca": str(broker.tls.ca), **security}
            file.write_text(yaml.safe_dump(settings))

        logs_in_with()
        with pytest.raises(KafkaUnavailableError, match=r"(?is)ssl.*kafka.security"):
            one.drain(spark)
        # As OpenSSL 3 encrypts keys: librdkafka takes it, and Java does not.
        logs_in_with(certificate=str(broker.tls.client), key_password="${env:FRAZIL_TEST_KEY}")
        with pytest.raises(FrazilError, match="openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES"):
            one.drain(spark)
        logs_in_with(certificate=str(broker.tls.keystore))
        drained = one.drain(spark)
        assert (drained.counts.landed, drained.counts.dead) == (49, 1)


def test_a_wrong_password_is_named(
    guarded: GuardedBroker, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", "not the password")
    one = secured(Pipeline(tmp_path / "reader", guarded.address, "wrong_password"), guarded)
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.security") as refused:
        one.drain(spark)
    assert guarded.address in str(refused.value)
    assert "not the password" not in str(refused.value)
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    monkeypatch.setenv("FRAZIL_TEST_ADMIN", "not the password")
    two = secured(Pipeline(tmp_path / "admin", guarded.address, "wrong_admin"), guarded, admin=True)
    with pytest.raises(KafkaUnavailableError, match=r"(?is)authentication failed.*kafka.admin.security"):
        two.kafka().topics(two.spec().source)


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


def test_the_least_rights_are_enough_and_secrets_change_under_a_driver_and_are_found_nowhere(
    guarded: GuardedBroker,
    database: DatabaseServer,
    objects: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_DAGSTER", "")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with serving(RegistryServer()) as registry:
        world = SecretStream(tmp_path / "home", guarded, database, objects, registry, tmp_path / "mounted")
        one, bundle = world.pipeline, tmp_path / "bundle.tar.gz"

        def told(*words: str) -> str:
            result = CliRunner().invoke(main, ["--home", str(one.home), *words])
            assert result.exit_code == 0, result.output
            return result.output

        with watched_arguments(world.values) as in_arguments:
            world.produce(20)
            said = told("start", one.stream)
            try:
                one.wait_until_landed()
                first = one.beat()
                for name in ("reader", "admin", "registry", "database"):
                    world.change(name)
                assert first.epoch is not None
                wait_for(lambda: (one.beat().epoch or 0) > (first.epoch or 0), "the stream to be opened anew", 60)
                world.produce(20)
                one.wait_until_landed()
                wait_for(lambda: len(list(messages_of(guarded.open_address, LETTERS))) == 2, "both letters", 30)
                assert one.beat().pid == first.pid
                os.environ["SECRET_OF_DAGSTER"] = world.present["database"]
                said += told("status", one.stream)
                # Its exit status is 1 where something is wrong, as a disk that is nearly full.
                said += CliRunner().invoke(main, ["--home", str(one.home), "doctor", "--bundle", str(bundle)]).output
            finally:
                said += told("stop", one.stream)
        assert sum(one.landed().values()) == 40
        positions = guarded.committed(f"lag-{one.stream}")
        assert sum(positions.values()) == 42
        # Without a place to look at, nothing would be found.
        lake = database.url_of("secret_lake")
        count, in_objects = in_bucket(world.values, s3_client(objects), BUCKET, world.folder.rpartition("/")[2])
        assert count > 10 and next(one.home.rglob("spark.log")).stat().st_size >= 0
        assert not in_objects and not in_arguments
        assert not in_files(world.values, one.home)
        with tarfile.open(bundle) as archive:
            archive.extractall(tmp_path / "bundle", filter="data")
        assert len(list((tmp_path / "bundle").rglob("*.log"))) > 0
        assert not in_files(world.values, tmp_path / "bundle")
        assert not in_database(world.values, lake, DATABASE_PASSWORD)
        assert not in_database(world.values, database.url_of("secret_dagster"), DATABASE_PASSWORD)
        for letter in messages_of(guarded.open_address, LETTERS):
            said += f"{letter.value()} {letter.headers()}"
        assert not shown(world.values, (said + repr(one.settings())).encode())


def test_a_missing_rule_is_told_with_the_command_that_adds_it(
    guarded: GuardedBroker, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_TEST_PASSWORD", PASSWORD)
    one = secured(Pipeline(tmp_path, guarded.address, "lacks_read"), guarded)
    produce(guarded, one.stream, 3)
    guarded.allow([("frazil", "DESCRIBE", f"topic:{one.stream}")])
    with pytest.raises(Exception, match=r"(?s)no right to Read on topic .*--operation Read --topic"):
        one.drain(spark)
