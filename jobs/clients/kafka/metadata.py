"""Metadata of topics from the brokers: ids, partitions, first and last offsets. Every call has a time-out."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from jobs.base.errors import FrazilError
from jobs.clients.kafka.consumer import MonitoredConsumer, consumer_options
from jobs.clients.kafka.refusals import (
    is_refusal,
    lacks_right,
    missing_rule,
    user_of,
)
from jobs.config.services.kafka_options import connection_options
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source, StartTimestamp
from jobs.tables.commit.stamp.log_state import LogState, undecided
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import LastReads

_POLL_SECONDS = 0.2
# One batch of records per partition is enough, even of an open transaction.
_LITTLE = {
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 1024,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 2,
    "queued.min.messages": 1,
}
# librdkafka's message for a cut log; its error code is also that of an offset which retention has removed.
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
    """Find partitions whose log was cut below the last record that was read.

    A consumer that is assigned an offset with the leader epoch of the record before it asks the leader, before it
    fetches, where the log of that epoch ends. If it ends earlier, the log was cut, and later records come from later
    leaders.

    Args:
        settings: Brokers, security and time-out.
        last_reads: Last record that was read of each partition.
        unavailable: Returns the error for brokers that do not answer, or refuse, from the reason.

    Returns:
        For each partition with a cut log, the first offset at which the log has another record than the one read, or
        none; 0 if the brokers do not know the leader epoch.
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
                # No cut: a record, the end of the log, an offset removed by retention, or a deleted topic.
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


log = logging.getLogger(__name__)
T = TypeVar("T")
_MOVED = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
_MOVED_SECONDS = 0.1
_UNREACHABLE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
KAFKA_SECONDS = 4.0
"""How long a quick look waits for the brokers, in seconds."""


class KafkaUnavailableError(FrazilError):
    """The brokers do not answer, or refuse the client.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check the brokers and `kafka` in the settings, then `frazil validate`; a driver waits

    Attributes:
        refused: The brokers answered and refused the password or certificate.
        unreachable: No broker answered, not even with an error.
    """

    def __init__(
        self, message: str, *, fix: str | None = None, refused: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(message, fix=fix)
        self.refused: bool = refused
        self.unreachable: bool = unreachable


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Ends of logs.

    Attributes:
        latest: Offset that a stream reads up to; with read_committed the last stable offset.
        watermarks: High watermarks, read just before; they include records of open transactions.
        leader_epochs: Epoch of each partition's leader, if the brokers report it.
    """

    latest: dict[TopicPartition, int]
    watermarks: dict[TopicPartition, int]
    leader_epochs: dict[TopicPartition, int]

    def undecided(self) -> dict[TopicPartition, int]:
        """Number of offsets in open transactions, for partitions that have any."""
        return undecided(self.latest, self.watermarks)


class KafkaLog:
    """Connection for metadata: it joins no group and reads no records.

    Args:
        settings: Brokers, security, isolation and time-out.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings: KafkaSettings = settings
        self._bootstrap: str = settings.require_bootstrap()
        self._remedy: str = settings.remedy
        self._identity: str = "security" if settings.admin is None else "admin.security"
        self._timeout: float = settings.request_timeout.total_seconds()
        committed = settings.isolation == "read_committed"
        self._isolation: IsolationLevel = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )
        self._last_error: KafkaError | None = None
        self._said: set[str] = set()
        options: dict[str, Any] = {
            **connection_options(settings.options),
            "bootstrap.servers": self._bootstrap,
            "error_cb": self._keep_error,
            "log_level": 0,
            "socket.timeout.ms": int(self._timeout * 1000),
            **librdkafka_options(settings.admin_security),
        }
        self._admin: AdminClient = AdminClient(options)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if its brokers report none."""
        return self._ask(lambda: self._admin.list_topics(timeout=self._timeout)).cluster_id

    def topics(self, source: Source) -> dict[str, list[int]]:
        """Return the partitions of every subscribed topic that exists and that the user may see, by topic.

        Raises:
            KafkaUnavailableError: The brokers do not answer or refuse, with the client's last error; or the user may
                see none of the named topics.
        """
        found = self._ask(lambda: self._admin.list_topics(timeout=self._timeout)).topics
        if self._settings.admin_security is not None:
            named = source.topics or ()
            self._ask_for_unseen([name for name in named if name not in found], some=any(n in found for n in named))
        return {name: sorted(meta.partitions) for name, meta in sorted(found.items()) if source.reads(name)}

    def _ask_for_unseen(self, names: list[str], *, some: bool) -> None:
        """Ask for topics by name: brokers do not list topics that the user must not see, but refuse them by name."""
        try:
            self.identities(names)
        except KafkaUnavailableError as problem:
            cause = problem.__cause__
            if not some or not isinstance(cause, KafkaException) or not lacks_right(cause.args[0]):
                raise
            # A topic that does not exist yet is refused in the same way, so it does not stop the others.
            if (said := str(problem)) not in self._said:
                self._said.add(said)
                log.warning("%s; the other topics are read", said)

    def identities(self, topics: Iterable[str]) -> dict[str, str]:
        """Return Kafka's id of each of `topics` that exists."""
        names = list(topics)
        if not names:
            return {}
        futures = self._ask(lambda: self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout))
        identities: dict[str, str] = {}
        for name, future in futures.items():
            try:
                identities[name] = str(self._ask(future.result, name).topic_id)
            except KafkaUnavailableError as problem:
                cause = problem.__cause__
                code = cause.args[0].code() if isinstance(cause, KafkaException) else None
                if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return identities

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets({p: OffsetSpec.earliest() for p in partitions})

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's log; with read_committed the last stable offset."""
        return self._offsets({p: OffsetSpec.latest() for p in partitions})

    def ends(self, partitions: Iterable[TopicPartition]) -> LogEnds:
        """Return the ends of each partition's log, with and without open transactions."""
        wanted = {p: OffsetSpec.latest() for p in partitions}
        # High watermarks first: records between the two requests must not count as open.
        everything = self._results(wanted, IsolationLevel.READ_UNCOMMITTED)
        reads_all = self._isolation == IsolationLevel.READ_UNCOMMITTED
        decided = everything if reads_all else self._results(wanted, self._isolation)
        return LogEnds(
            {p: found.offset for p, found in decided.items()},
            {p: found.offset for p, found in everything.items()},
            {p: e for p, found in decided.items() if (e := found.leader_epoch) is not None and e >= 0},
        )

    def departures(self, last_reads: LastReads) -> dict[TopicPartition, int]:
        """Find partitions whose log was cut; see the function `departures`."""

        def unavailable(said: str, refused: bool) -> KafkaUnavailableError:
            hint = "check that the brokers run and that the user may read the stream's topics"
            return KafkaUnavailableError(f"Kafka at {self._bootstrap}: {said}", fix=hint, refused=refused)

        return departures(self._settings, last_reads, unavailable)

    def at_time(self, partitions: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int]:
        """Return the first offset with a timestamp of at least `millis` (since 1970, UTC), or the end of the log."""
        wanted = list(partitions)
        found = self._offsets({p: OffsetSpec.for_timestamp(millis) for p in wanted})
        none = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.latest(none) if none else {})

    def newest_times(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the largest timestamp of each partition with records; milliseconds since 1970, UTC."""
        found = self._results({p: OffsetSpec.max_timestamp() for p in partitions}, IsolationLevel.READ_UNCOMMITTED)
        return {partition: each.timestamp for partition, each in found.items() if each.timestamp >= 0}

    def state(self, source: Source) -> LogState:
        """Return ids, first and last offsets of all topics that `source` subscribes to."""
        seen_ms = time.time_ns() // 1_000_000
        topics = self.topics(source)
        partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
        identities, earliest, ends = self.identities(topics), self.earliest(partitions), self.ends(partitions)
        return LogState(identities, earliest, ends.latest, ends.watermarks, ends.leader_epochs, seen_ms)

    def first_start(self, source: Source, log: LogState) -> Positions:
        """Return the offsets of `source.start`, for a stream that has no stamp yet."""
        start = source.start
        if start == "earliest":
            return log.earliest
        if start == "latest":
            return log.latest
        if isinstance(start, StartTimestamp):
            return self.at_time(log.earliest, int(start.timestamp.timestamp() * 1000))
        named = {TopicPartition(topic, p): at for topic, ps in start.offsets.items() for p, at in ps.items()}
        unknown = sorted(str(partition) for partition in named if partition not in log.earliest)
        if unknown:
            raise FrazilError(
                f"source.start names partitions that do not exist: {', '.join(unknown)}",
                fix="correct source.start.offsets in the stream's file",
            )
        outside = [
            f"{partition} at {offset}, which keeps [{log.earliest[partition]}, {log.latest[partition]}]"
            for partition, offset in sorted(named.items())
            if not log.earliest[partition] <= offset <= log.latest[partition]
        ]
        if outside:
            raise FrazilError(
                f"source.start names offsets that Kafka does not keep: {', '.join(outside)}",
                fix="correct source.start.offsets in the stream's file",
            )
        return {partition: named.get(partition, earliest) for partition, earliest in log.earliest.items()}

    def _offsets(self, wanted: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        return {partition: found.offset for partition, found in self._results(wanted, self._isolation).items()}

    def _results(self, wanted: Mapping[TopicPartition, Any], isolation: IsolationLevel) -> dict[TopicPartition, Any]:
        if not wanted:
            return {}
        request = {ClientPartition(p.topic, p.partition): spec for p, spec in wanted.items()}
        deadline = time.monotonic() + self._timeout
        while True:
            futures = self._ask(
                lambda: self._admin.list_offsets(request, isolation_level=isolation, request_timeout=self._timeout)
            )
            try:
                return {
                    TopicPartition(p.topic, p.partition): self._ask(each.result, p.topic) for p, each in futures.items()
                }
            except KafkaUnavailableError as problem:
                cause = problem.__cause__
                moved = isinstance(cause, KafkaException) and cause.args[0].code() in _MOVED
                if not moved or time.monotonic() > deadline:
                    raise
            # Without new metadata, the client keeps asking the former leaders for minutes.
            time.sleep(_MOVED_SECONDS)
            self._ask(lambda: self._admin.list_topics(timeout=self._timeout))

    def _keep_error(self, error: KafkaError) -> None:
        # "All brokers down" follows the real reason, and is less specific.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _ask(self, question: Callable[[], T], topic: str = "") -> T:
        try:
            answer = question()
            self._last_error = None
            return answer
        except KafkaException as problem:
            error: Any = problem.args[0]
            # The callback that carries the reason, such as a refused password, is served by a poll.
            self._admin.poll(0.2)
            reason = self._last_error if self._last_error is not None else error
            if lacks_right(error):
                user = user_of(self._settings.admin_security)
                missing, rule = missing_rule(error, self._bootstrap, user, ("Describe",), topic)
                raise KafkaUnavailableError(
                    f"Kafka at {self._bootstrap}: {error.str()}: {missing}", fix=rule
                ) from problem
            refused = is_refusal(reason)
            hint = f"check kafka.{self._identity} in frazil.yaml" if refused else self._remedy
            said = f"Kafka at {self._bootstrap}: {reason.str()}"
            # Codes of brokers are positive, codes of the client negative.
            away = error.code() in _UNREACHABLE or (error.code() < 0 and reason.code() in _UNREACHABLE)
            raise KafkaUnavailableError(said, fix=hint, refused=refused, unreachable=away and not refused) from problem


def quick_kafka(settings: KafkaSettings, seconds: float | None = None) -> KafkaLog:
    """Return a connection that gives up after `seconds`, by default KAFKA_SECONDS.

    Raises:
        FrazilError: The local broker is not running, or a secret is not set.
    """
    quick = min(settings.request_timeout, timedelta(seconds=KAFKA_SECONDS if seconds is None else seconds))
    return KafkaLog(settings.model_copy(update={"request_timeout": quick}))
