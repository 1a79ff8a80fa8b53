"""Topic reader: records of a topic by their offsets, without a consumer group's positions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.kafka.refusals import lacks_right, missing_rule, user_of
from jobs.config.services.kafka_options import reading_options
from jobs.config.services.security import KafkaSecurity, librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

_FIX = "check that the brokers run and that the user may read the topic, then run this again"
# How long a batch waits to be full. After aborted records it never is.
_POLL_SECONDS = 0.2
_BATCH = 2000


class TopicReader:
    """Reads records by their offsets; a context manager.

    Args:
        settings: Brokers, security, isolation and time-out.
        name: Group name in the brokers' logs; nothing is committed to it.
    """

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self._bootstrap: str = settings.require_bootstrap()
        self._security: KafkaSecurity | None = settings.security
        self._timeout: float = settings.request_timeout.total_seconds()
        options: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": settings.isolation,
            "enable.partition.eof": True,
            # How long the broker holds a request at the end of the log, where only the end-of-partition event is
            # awaited.
            "fetch.wait.max.ms": 2,
            **reading_options(settings.options),
            "allow.auto.create.topics": False,
            "log_level": 0,
            **librdkafka_options(settings.security),
        }
        self._consumer: Consumer = Consumer(options)

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self, partition: TopicPartition, range_: OffsetRange) -> Iterator[list[Message]]:
        """Yield the records of a range that the log still has, in batches.

        Raises:
            KafkaUnavailableError: No answer came within the request time-out.
        """
        at, last = range_.start, time.monotonic()
        self._consumer.assign([ClientPartition(partition.topic, partition.partition, at)])
        try:
            while at < range_.end:
                batch: list[Message] = []
                for message in self._consumer.consume(min(_BATCH, range_.end - at), _POLL_SECONDS):
                    error, offset = message.error(), message.offset() or 0
                    if error is not None and message.topic() is None:
                        # An error of the group coordinator, which is not used, and which the user may not be allowed to
                        # ask.
                        continue
                    if error is None:
                        at = offset + 1
                        if offset < range_.end:
                            batch.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # Only transaction markers may follow the last record.
                        at = max(at, offset)
                    elif lacks_right(error):
                        user = user_of(self._security)
                        missing, rule = missing_rule(error, self._bootstrap, user, ("Read",), partition.topic)
                        raise self._failed(partition, at, f"{error.str()}: {missing}", rule)
                    elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                        raise self._failed(partition, at, error.str())
                    last = time.monotonic() if error is None or at >= range_.end else last
                if batch:
                    yield batch
                    last = time.monotonic()
                elif time.monotonic() - last > self._timeout:
                    raise self._failed(partition, at, f"nothing came for {self._timeout:.0f} s")
        except KafkaException as problem:
            raise self._failed(partition, at, problem.args[0].str()) from problem
        finally:
            self._consumer.unassign()

    def _failed(self, partition: TopicPartition, at: int, said: str, fix: str = _FIX) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"Kafka at {self._bootstrap}: topic {partition.topic}, partition {partition.partition} cannot be read at "
            f"offset {at}: {said}",
            fix=fix,
        )
