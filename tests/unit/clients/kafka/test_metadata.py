"""What brokers do not tell: topics that a user must not see, and everything, while none of them answers."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source


class Brokers:
    """What brokers say of topics of which a user sees some."""

    def __init__(self, seen: list[str], code: int = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> None:
        self.seen: list[str] = seen
        self.code: int = code

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(partitions={0: None}) for name in self.seen})

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
        for future in futures.values():
            future.set_exception(KafkaException(KafkaError(self.code)))
        return futures

    def poll(self, timeout: float) -> None:
        pass


def log_of(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> KafkaLog:
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "user": "me", "password": "${env:FRAZIL_T_PW}"}
    monkeypatch.setenv("FRAZIL_T_PW", "x")
    kafka = KafkaLog(KafkaSettings.model_validate({"bootstrap_servers": "127.0.0.1:9", "security": security}))
    monkeypatch.setattr(kafka, "_admin", brokers)
    return kafka


def test_others_are_read_and_the_rule_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = log_of(Brokers(["a"]), monkeypatch)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert kafka.topics(Source(topics=("a", "b"))) == {"a": [0]}
    (said,) = caplog.messages
    assert "User:me has no right to Describe on topic b" in said and said.endswith("the other topics are read")


def test_where_none_is_seen_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaUnavailableError, match="User:me has no right to Describe on topic"):
        log_of(Brokers(["other"]), monkeypatch).topics(Source(topics=("a", "b")))


def test_another_error_is_one_beside_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaUnavailableError):
        log_of(Brokers(["a"], KafkaError.REQUEST_TIMED_OUT), monkeypatch).topics(Source(topics=("a", "b")))


def test_a_topic_that_is_not_there_yet_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers([], KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert log_of(brokers, monkeypatch).topics(Source(topics=("a", "b"))) == {}


@pytest.mark.parametrize(
    ("said", "before", "unreachable"),
    [
        # As measured of a broker that is not there, and of one that was killed once it was known.
        (KafkaError._TIMED_OUT, None, True),
        (KafkaError._NOENT, KafkaError._TRANSPORT, True),
        (KafkaError._NOENT, None, False),
        (KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._TRANSPORT, False),
    ],
)
def test_brokers_that_do_not_answer_are_told_from_those_that_answer_with_an_error(
    monkeypatch: pytest.MonkeyPatch, said: int, before: int | None, unreachable: bool
) -> None:
    kafka = log_of(Brokers([]), monkeypatch)
    if before is not None:
        kafka._keep_error(KafkaError(before))

    def ask() -> None:
        raise KafkaException(KafkaError(said))

    with pytest.raises(KafkaUnavailableError) as told:
        kafka._ask(ask)
    assert told.value.unreachable is unreachable
