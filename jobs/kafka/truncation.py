"""Log truncation check: whether a log still holds what was read of it, asked of the brokers by leader epochs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_fields import LastReads
from jobs.kafka.consumer import MonitoredConsumer, consumer_options
from jobs.spec.settings import KafkaSettings

_POLL_SECONDS = 0.2
# One batch of records per partition is enough to know; whether it is decided does not matter here.
_LITTLE = {
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 1024,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 2,
    "queued.min.messages": 1,
}
# As librdkafka says it: the code alone is also that of an offset which retention has passed.
_CUT = "truncation detected"
_DEPARTS = re.compile(r"broker end offset is (\d+)")
_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


def departures(
    settings: KafkaSettings, last_reads: LastReads, unavailable: Callable[[str, bool], Exception]
) -> dict[TopicPartition, int]:
    """Where logs depart from what was read of them; nothing of a log that goes on.

    A consumer that is assigned an offset with the epoch of the record before it asks the leader how far the log goes
    under that epoch, before it fetches. Where that is less, the log was cut, and what follows is of later leaders.

    Args:
        settings: Brokers, security and time-out.
        last_reads: The last record that was read, per partition.
        unavailable: Makes the error of brokers that do not answer, or refuse, from what is said of it.

    Returns:
        Per partition, the first offset at which the log holds another record than the one that was read, or none. It
        is 0 where the brokers know nothing of the epoch.
    """
    if not last_reads:
        return {}
    client = MonitoredConsumer({**consumer_options(settings, "log-check"), **_LITTLE})
    consumer, timeout = client.consumer, settings.request_timeout.total_seconds()
    unknown, found = set(last_reads), {}
    last = time.monotonic()
    try:
        consumer.assign([ClientPartition(p.topic, p.partition, m.after, "", m.epoch) for p, m in last_reads.items()])
        while unknown:
            for message in consumer.consume(len(unknown), _POLL_SECONDS):
                source, error = TopicPartition(message.topic() or "", message.partition() or 0), message.error()
                if source not in unknown:
                    continue
                if error is not None and error.code() in _REFUSED:
                    raise unavailable(error.str(), True)
                if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET and _CUT in error.str():
                    departs = _DEPARTS.search(error.str())
                    found[source] = int(departs[1]) if departs else 0
                elif error is not None and error.retriable():
                    continue
                # A record, the end of the log, retention that has come further, a topic that is gone: no cut.
                unknown.discard(source)
                consumer.incremental_unassign([ClientPartition(*source)])
                last = time.monotonic()
            if time.monotonic() - last > timeout:
                problem = client.problem
                raise unavailable(problem.str() if problem else f"nothing came for {timeout:.0f} s", False)
    except KafkaException as problem:
        raise unavailable(problem.args[0].str(), False) from problem
    finally:
        consumer.close()
    return found
