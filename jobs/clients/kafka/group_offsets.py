"""Consumer group offsets: a stream's positions for tools that watch lag. frazil does not read them back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.kafka.refusals import lacks_right, missing_rule, user_of
from jobs.config.services.kafka_options import connection_options
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

log = logging.getLogger(__name__)

_RETRY_SECONDS = 3.0
# Kafka expires the offsets of a group without members days after the last commit, even if a topic is quiet.
_REFRESH_SECONDS = 3600.0
_STOP_SECONDS = 2.0
_LONGEST_REQUEST_SECONDS = 10.0
# A broker's error codes for a commit from outside the group, depending on its version and the group's protocol.
_IN_USE = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION}
COORDINATOR_NOT_READY = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


class GroupOffsets:
    """Commits the newest positions to a consumer group, in its own thread.

    A slow broker delays no batch: newer positions replace those that were not committed yet. A failure stops nothing;
    it is logged if it differs from the last one, and tried again.

    Args:
        kafka: Settings of Kafka.
        group: Name of the group, which nobody else should use.
    """

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._kafka: KafkaSettings = kafka
        self._group: str = group
        self._timeout: float = min(kafka.request_timeout.total_seconds(), _LONGEST_REQUEST_SECONDS)
        self._admin: AdminClient | None = None
        self._newest: dict[TopicPartition, int] = {}
        self._waiting: bool = False
        self._stopping: bool = False
        self._failure: str | None = None
        self._changed: threading.Condition = threading.Condition()
        self._thread: threading.Thread = background_thread(self._work, "group-offsets")
        self._thread.start()

    def publish(self, positions: Mapping[TopicPartition, int]) -> None:
        """Schedule a commit of these next offsets; return at once."""
        with self._changed:
            self._newest = dict(positions)
            self._waiting = bool(positions)
            self._changed.notify()

    def stop(self) -> None:
        """Commit waiting offsets, for at most two seconds; if the broker does not answer, do not wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        stopping = False
        while not stopping:
            with self._changed:
                pause = _REFRESH_SECONDS if self._failure is None else _RETRY_SECONDS
                self._changed.wait_for(lambda: self._waiting or self._stopping, pause)
                stopping = self._stopping
                positions = self._newest if self._waiting or not stopping else {}
                self._waiting = False
            if positions:
                self._commit(positions)

    def _commit(self, positions: Positions) -> None:
        try:
            failure = "; ".join(sorted(set(self._problems(positions)))) or None
        except FrazilError as problem:
            failure = problem.message
        except KafkaException as problem:
            failure = self._sentence(problem.args[0])
        except TimeoutError:
            failure = "Kafka's client gave no answer"
        if failure != self._failure:
            if failure:
                log.warning("consumer group %s does not follow the stream: %s", self._group, failure)
            else:
                log.info("consumer group %s follows the stream again", self._group)
        self._failure = failure

    def _problems(self, positions: Positions) -> Iterator[str]:
        if self._admin is None:
            options: dict[str, Any] = {
                **connection_options(self._kafka.options),
                "bootstrap.servers": self._kafka.require_bootstrap(),
                "log_level": 0,
                "error_cb": lambda error: None,
                "socket.timeout.ms": int(self._timeout * 1000),
                **librdkafka_options(self._kafka.admin_security),
            }
            self._admin = AdminClient(options)
        wanted = [ClientPartition(p.topic, p.partition, offset) for p, offset in positions.items()]
        request = ConsumerGroupTopicPartitions(self._group, wanted)
        answers = self._admin.alter_consumer_group_offsets([request], request_timeout=self._timeout)
        # The request has its own, shorter time-out; this one guards the thread against waiting for ever.
        for committed in answers[self._group].result(2 * self._timeout).topic_partitions:
            if committed.error:
                yield self._sentence(committed.error, f"{committed.topic}-{committed.partition}: ")

    def _sentence(self, error: KafkaError, where: str = "") -> str:
        if error.code() in _IN_USE:
            return "the group has members, so another consumer uses its name; choose another in source.group"
        if error.code() in COORDINATOR_NOT_READY:
            return "its coordinator is not ready; it is tried again"
        if lacks_right(error):
            # For a topic, the error names it with its partition.
            name = where.rpartition("-")[0] if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else self._group
            servers, user = self._kafka.require_bootstrap(), user_of(self._kafka.admin_security)
            return "{}: {}; next: {}".format(error.str(), *missing_rule(error, servers, user, ("Read",), name))
        return f"{where}{error.str()}"
