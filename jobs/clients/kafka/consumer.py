"""Consumer of a task: its options, the last error of its connections, and its fetch progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException

from jobs.base.errors import FrazilError
from jobs.base.system.carried import local_options
from jobs.clients.kafka.refusals import LOGIN_CODES
from jobs.config.services.kafka_options import reading_options
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.tables.commit.stamp.offsets import TopicPartition

_OPTIONS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A missing offset is an error; the consumer never jumps to another one.
    "auto.offset.reset": "error",
    # Only transaction markers may follow the last record of a range; the end-of-partition event shows that.
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # On by default in Kafka's Java client, off in librdkafka.
    "check.crcs": True,
    "log_level": 0,
    # Statistics show progress even through a long aborted transaction, of which no record comes.
    "statistics.interval.ms": 2_000,
    # How long the broker holds a request at the end of the log; the request for the next range waits for that.
    "fetch.wait.max.ms": 2,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 4 * 1024 * 1024,
    # Limits of prefetching. When they are reached, librdkafka pauses, by default for a second.
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 32 * 1024,
    "fetch.queue.backoff.ms": 5,
}


class ReadError(FrazilError):
    """A range of a topic cannot be read: a damaged record, or a missing right.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: grant READ on the topic, or read the brokers' logs; then `frazil start S`
    """


class LostOffsetsError(ReadError):
    """The log lost an offset of the batch while it was read.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: `frazil start S`, whose message names the answer
    """


def consumer_options(settings: KafkaSettings, stream: str) -> dict[str, Any]:
    """Return the options of the tasks' consumers. They contain the password, so they are never logged.

    Args:
        settings: Brokers, security, isolation, time-out and options.
        stream: Group name in the brokers' logs; nothing is committed to it.

    Raises:
        FrazilError: A secret's environment variable is not set.
    """
    return {
        **_OPTIONS,
        **reading_options(settings.options),
        "bootstrap.servers": settings.require_bootstrap(),
        "isolation.level": settings.isolation,
        "group.id": f"frazil-{stream}",
        "socket.timeout.ms": int(settings.request_timeout.total_seconds() * 1000),
        **librdkafka_options(settings.security),
    }


class MonitoredConsumer:
    """A consumer with the last error of its connections and its fetch progress."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.problem: KafkaError | None = None
        self.fetched: dict[TopicPartition, int] = {}
        self.servers: str = str(options["bootstrap.servers"])
        try:
            self.consumer: Consumer = Consumer(
                {**local_options(options), "error_cb": self._keep_error, "stats_cb": self._read_statistics}
            )
        except KafkaException as problem:
            raise ReadError(
                f"Kafka's client does not take its options: {problem.args[0].str()}",
                fix="look at kafka.security",
            ) from None

    def _keep_error(self, error: KafkaError) -> None:
        # After a refusal, later errors say only that no broker is left.
        if self.problem is None or self.problem.code() not in LOGIN_CODES or error.code() in LOGIN_CODES:
            self.problem = error

    def _read_statistics(self, statistics: str) -> None:
        for topic, found in msgspec.json.decode(statistics).get("topics", {}).items():
            for number, each in found["partitions"].items():
                self.fetched[TopicPartition(topic, int(number))] = each["next_offset"]
