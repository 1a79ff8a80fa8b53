"""Letters are published beside a stream that never waits for them: another cluster, one that is away, drains."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from jobs.config.services.security import librdkafka_options
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.dead_letter_publisher.topic import OutboxError
from jobs.streaming.driver.process.outbox_thread import OutboxState, OutboxThread
from orchestration.cli.stream_files.validate.service_checks import check_letter_topic
from tests.helpers.secure_listener import make_user, secure_listener
from tests.helpers.tls import Tls, make_tls
from tests.helpers.waiting import wait_for
from tests.integration.dead_letters import Letters
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

PASSWORD = "p'a\\ss=w;rd"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return make_tls(tmp_path_factory.mktemp("tls"))


class Elsewhere(NamedTuple):
    """Another cluster.

    Attributes:
        broker: Its broker.
        secure: Address of the listener that asks who one is.
    """

    broker: LocalBroker
    secure: str


@pytest.fixture(scope="module")
def elsewhere(tls: Tls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    address, properties = secure_listener(folder, tls.keystore)
    broker = LocalBroker(folder, properties=properties)
    admin = AdminClient({"bootstrap.servers": broker.start()})
    try:
        make_user(admin, "letters", PASSWORD)
        yield Elsewhere(broker, address)
    finally:
        broker.stop()


def test_another_cluster_with_security_of_its_own(
    broker: str, elsewhere: Elsewhere, tls: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "user": "letters",
        "password": "${env:LETTERS_PASSWORD}",
        "ca": str(tls.ca),
    }
    one = Letters(
        tmp_path / "letters",
        broker,
        "elsewhere",
        {"kafka": {"bootstrap_servers": elsewhere.secure, "security": security}},
        request_timeout=timedelta(seconds=8),
    )
    one.claim(1)
    expected = one.add(1, 0, range(7))
    monkeypatch.setenv("LETTERS_PASSWORD", "not the password")
    with pytest.raises(OutboxError, match=r"(?is)authentication failed") as refused:
        one.publish()
    assert refused.value.lasting
    assert "kafka.security" in str(refused.value.fix)
    assert "not the password" not in str(refused.value)
    monkeypatch.setenv("LETTERS_PASSWORD", PASSWORD)
    assert one.publish() == 7
    topic = one.letter_topic()
    assert topic.kafka is not None
    options: dict[str, Any] = {"bootstrap.servers": elsewhere.secure, **librdkafka_options(topic.kafka.security)}
    assert sorted(one.seen(options=options)) == sorted(expected)
    assert "elsewhere.dead" not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=60).topics
    assert PASSWORD not in (tmp_path / "letters" / "state" / "published.json").read_text()


def test_a_cluster_that_is_away_is_waited_for_and_stands_in_nobodys_way(
    elsewhere: Elsewhere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = elsewhere.broker.status().address
    assert address is not None
    one = Letters(tmp_path / "letters", address, "away", request_timeout=timedelta(seconds=5))
    one.claim(1)
    expected = one.add(1, 0, range(3))
    told: list[OutboxState] = []
    publishing = OutboxThread("away", one.outbox(), told.append)
    wait_for(lambda: publishing.state.unpublished == 0, "the letters that were there")
    elsewhere.broker.stop()
    expected += one.add(1, 1, range(3, 7))
    began = time.monotonic()
    for _ in range(1000):
        publishing.wake()
    assert time.monotonic() - began < 300, "seconds each, if it waited"
    wait_for(lambda: publishing.state.problem is not None, "a word about the cluster")
    assert publishing.state.unpublished == 4
    assert address in str(publishing.state.problem)
    assert elsewhere.broker.start() == address
    wait_for(lambda: publishing.state == OutboxState(0), "the letters to be published")
    publishing.stop()
    assert Counter(one.seen()) == Counter(expected)
    # A cluster on its way down or up may have several things to say; none is said again with each attempt.
    said = "dead letters of stream away are not published"
    told_of = [each.message for each in caplog.records if said in each.message]
    assert told_of
    assert all(one != another for one, another in itertools.pairwise(told_of))


def test_validate_looks_for_the_topic(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()

    def checked(**topic: Any) -> tuple[str, str, str | None]:
        one.write_spec(errors={"dead_letters": {"topic": {"name": f"{one.stream}.dead"} | topic}})
        verdict = check_letter_topic(one.spec(), one.settings())
        assert verdict is not None
        return verdict.verdict, verdict.sentence, verdict.fix

    verdict, sentence, fix = checked()
    assert (verdict, sentence) == (
        "wrong",
        f"topic {one.stream}.dead for the dead letters does not exist at {one.address}",
    )
    assert f"--bootstrap-server {one.address} --create --topic {one.stream}.dead --partitions 1" in str(fix)
    assert checked(create=True, replication_factor=1)[0] == "ok"
    one.create_topic(f"{one.stream}.dead")
    assert checked() == ("ok", f"topic {one.stream}.dead (2 partitions) for the dead letters exists", None)
    assert checked(kafka={"bootstrap_servers": "127.0.0.1:1"})[0] == "unchecked"
    security = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "user": "u", "password": "${env:NOT_SET_ANYWHERE}"}
    verdict, sentence, _ = checked(kafka={"bootstrap_servers": one.address, "security": security})
    assert (verdict, "NOT_SET_ANYWHERE" in sentence) == ("unchecked", True)


def with_topic(pipeline: Callable[..., Pipeline], **topic: Any) -> Pipeline:
    one = pipeline()
    name = {"name": f"{one.stream}.dead", "create": True, "replication_factor": 1}
    one.write_spec(errors={"dead_letters": {"table": one.dead_name, "topic": name | topic}})
    return one


def test_a_drain_publishes_before_it_ends(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = with_topic(pipeline)
    one.produce({GOOD: 40, TRUNCATED: 6})
    drained = one.drain(spark)
    assert drained.letters == OutboxState(0)
    topic = Letters(one.home, one.address, one.stream)
    assert Counter(topic.seen()) == one.dead()
    assert topic.read()[0].last("__connect.errors.stage") == "VALUE_CONVERTER"
    # The cluster of the topic is away: the drain lands everything, and says what it leaves to the next run.
    one.write_spec(
        errors={
            "dead_letters": {
                "table": one.dead_name,
                "topic": {"name": f"{one.stream}.dead", "kafka": {"bootstrap_servers": "127.0.0.1:1"}},
            }
        }
    )
    settings = one.home / "frazil.yaml"
    settings.write_text(settings.read_text().replace("kafka:\n", "kafka:\n  request_timeout: 3s\n"))
    one.produce({TRUNCATED: 3})
    drained = one.drain(spark)
    assert (drained.counts.dead, drained.letters and drained.letters.unpublished) == (3, 3)
    assert drained.letters is not None
    assert "127.0.0.1:1" in str(drained.letters.problem)
    assert sum(one.dead().values()) == 9
