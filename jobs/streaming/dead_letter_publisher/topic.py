"""Topic of the dead letters on its cluster: existence, creation, and limits."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from jobs.base.errors import FrazilError
from jobs.clients.kafka.refusals import (
    is_refusal,
    lacks_right,
    missing_rule,
    user_of,
)
from jobs.config.services.kafka_options import connection_options
from jobs.config.services.security import KafkaSecurity, librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.error_handling import DeadLetterTopic
from jobs.tables.dead_letter_table.kafka_record import RecordLimits

T = TypeVar("T")
_silent = logging.Logger("librdkafka", logging.CRITICAL + 1)
_NOT_AS_ASKED = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.POLICY_VIOLATION,
}
_NEVER = 2**62
_POLL_SECONDS = 0.1


class OutboxError(FrazilError):
    """Dead letters could not be published to their topic.

    Safe: They are in the dead-letter table, and are published later.
    Next: create the topic, or grant WRITE on it

    Attributes:
        lasting: Waiting does not help: somebody has to change something.
    """

    def __init__(self, message: str, *, fix: str | None = None, lasting: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.lasting: bool = lasting


def cluster_of(topic: DeadLetterTopic, kafka: KafkaSettings) -> KafkaSettings:
    """Settings of the topic's cluster: its own Kafka, or that of the settings. Timeouts are those of the settings."""
    if topic.kafka is None:
        return kafka
    return KafkaSettings(
        bootstrap_servers=topic.kafka.bootstrap_servers,
        security=topic.kafka.security,
        request_timeout=kafka.request_timeout,
    )


def command_to_create(topic: DeadLetterTopic, servers: str) -> str:
    """Command, or configuration, that creates a missing topic."""
    return (
        f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic.name} --partitions "
        f"{topic.partitions or 1} --replication-factor {topic.replication_factor or 3}; or create: true and "
        "replication_factor in errors.dead_letters.topic"
    )


class TopicCluster:
    """The cluster with the topic.

    Attributes:
        identity: Transactional id and group of the publisher, for messages; empty until it publishes.

    Raises:
        LocalBrokerDown: The cluster is the local broker, which does not run.
    """

    def __init__(self, kafka: KafkaSettings, topic: DeadLetterTopic, stream: str) -> None:
        self.servers: str = kafka.require_bootstrap()
        self.timeout: float = kafka.request_timeout.total_seconds()
        self.identity: str = ""
        self._topic: DeadLetterTopic = topic
        self._stream: str = stream
        self._kafka: KafkaSettings = kafka
        self._last_error: KafkaError | None = None

    def options(self) -> dict[str, Any]:
        """Client options to read or write the topic; secrets are in the clear."""
        return self._options(self._kafka.security)

    def _options(self, security: KafkaSecurity | None) -> dict[str, Any]:
        return {
            **connection_options(self._kafka.options),
            "bootstrap.servers": self.servers,
            "error_cb": self._note,
            "log_level": 0,
            # The client would print fatal errors at any level; they are raised as errors here.
            "logger": _silent,
            "socket.timeout.ms": max(1000, int(self.timeout * 1000)),
            **librdkafka_options(security),
        }

    def limits(self) -> RecordLimits:
        """Limits of the topic; creates it first if it is missing and may be created.

        Raises:
            OutboxError: The topic is missing, or the cluster does not answer or refuses.
        """
        admin = AdminClient(self._options(self._kafka.admin_security))
        if not self._exists(admin):
            self._create(admin)
        resource = ConfigResource(ResourceType.TOPIC, self._topic.name)
        futures = self.ask(lambda: admin.describe_configs([resource], request_timeout=self.timeout), admin)
        try:
            found = futures[resource].result(2 * self.timeout)
        except KafkaException:
            # A user who may write to a topic need not be allowed to describe it; most topics have the default.
            return RecordLimits()
        return limits_from({name: entry.value for name, entry in found.items()})

    def ask(self, question: Callable[[], T], client: Any) -> T:
        """Answer of a client.

        Raises:
            OutboxError: With the client's own last message, such as a wrong password.
        """
        try:
            return question()
        except KafkaException as problem:
            raise self.failure(problem, client) from problem
        except TimeoutError as problem:
            raise OutboxError(f"Kafka at {self.servers} gave no answer") from problem

    def failure(self, problem: KafkaException, client: Any) -> OutboxError:
        """A client's exception as an error with a sentence."""
        # A poll serves the callback that carries the reason, such as a refused password.
        with contextlib.suppress(KafkaException):
            client.poll(0.2)
        error: KafkaError = problem.args[0]
        local = error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
        reason = self._last_error if local and self._last_error is not None else error
        if lacks_right(reason):
            return self._without_right(reason, by_admin=isinstance(client, AdminClient))
        refused = is_refusal(reason) or reason.code() == KafkaError.SASL_AUTHENTICATION_FAILED
        of = f"streams/{self._stream}.yaml" if self._topic.kafka else "frazil.yaml"
        hint = f"check kafka.security in {of}" if refused else self._kafka.remedy.replace("frazil.yaml", of)
        return OutboxError(f"Kafka at {self.servers}: {reason.str()}", fix=hint, lasting=refused)

    def _without_right(self, reason: KafkaError, *, by_admin: bool) -> OutboxError:
        user = user_of(self._kafka.admin_security if by_admin else self._kafka.security)
        name, operations = self._topic.name, ("Describe", "Create") if by_admin else ("Write", "Read", "Describe")
        if reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            name, operations = self.identity, ("Read",)
        elif reason.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            name, operations = self.identity, ("Write", "Describe")
        missing, rule = missing_rule(reason, self.servers, user, operations, name)
        return OutboxError(f"Kafka at {self.servers}: {reason.str()}: {missing}", fix=rule, lasting=True)

    def _exists(self, admin: AdminClient) -> bool:
        # All topics are listed: asking for one by name may create it, with the default replication factor.
        return self._topic.name in self.ask(lambda: admin.list_topics(timeout=self.timeout), admin).topics

    def _create(self, admin: AdminClient) -> None:
        topic = self._topic
        partitions, factor = topic.partitions or 1, topic.replication_factor
        if not topic.create:
            raise OutboxError(
                f"topic {topic.name} for the dead letters of stream {self._stream} does not exist at {self.servers}.",
                fix=command_to_create(topic, self.servers),
                lasting=True,
            )
        # A dead letter whose value is in the table only has a null value, which a compacted topic would take for a
        # deletion.
        wanted = NewTopic(topic.name, partitions, factor or -1, config={"cleanup.policy": "delete"})
        futures = self.ask(lambda: admin.create_topics([wanted], request_timeout=self.timeout), admin)
        try:
            self.ask(lambda: futures[topic.name].result(2 * self.timeout), admin)
        except OutboxError as problem:
            cause = problem.__cause__
            error = cause.args[0] if isinstance(cause, KafkaException) else None
            if error is not None and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            ours = error is not None and error.code() in _NOT_AS_ASKED
            raise OutboxError(
                f"topic {topic.name} for the dead letters of stream {self._stream} cannot be created with "
                f"{partitions} partitions and replication factor {factor}: {problem.message}",
                fix="correct errors.dead_letters.topic, or create the topic by hand" if ours else problem.fix,
                lasting=ours or problem.lasting,
            ) from None
        deadline = time.monotonic() + self.timeout
        while not self._exists(admin):
            if time.monotonic() > deadline:
                raise OutboxError(f"topic {topic.name} was created, and Kafka at {self.servers} does not list it yet")
            time.sleep(_POLL_SECONDS)

    def _note(self, error: KafkaError) -> None:
        # "All brokers down" follows the real reason and hides it.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error


def limits_from(config: dict[str, str | None]) -> RecordLimits:
    """The limits of the outbox's topic, by its configuration."""

    def distance(name: str) -> int | None:
        text = config.get(name)
        return int(text) if text and int(text) < _NEVER else None

    largest = int(config.get("max.message.bytes") or RecordLimits().max_bytes)
    if config.get("message.timestamp.type") == "LogAppendTime":
        return RecordLimits(largest)
    either = distance("message.timestamp.difference.max.ms")
    before, after = distance("message.timestamp.before.max.ms"), distance("message.timestamp.after.max.ms")
    return RecordLimits(largest, before if before is not None else either, after if after is not None else either)
