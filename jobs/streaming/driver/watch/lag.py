"""Consumer lag of a stream, queried in a thread while its driver runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.clients.kafka.open_transactions import HANGING_SECONDS, OpenTransactions, find_hanging
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.supervision.documents.heartbeat import LastError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition

log = logging.getLogger(__name__)

_LAG_SECONDS = 10.0
ANSWER_SECONDS = 10.0
"""Longest wait for the brokers in one look. So unavailable brokers are reported within half a minute."""


@dataclass
class _Query:
    """State of a query at its start, and what was seen since.

    Attributes:
        under: Leader epochs at its start.
        leaders: Present leader epochs.
    """

    reads: frozenset[str] = frozenset()
    under: Mapping[TopicPartition, int] = field(default_factory=dict)
    there: frozenset[str] = frozenset()
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)


class LagWatch:
    """Asks Kafka every ten seconds, in a thread of its own, so that a slow Kafka delays nothing.

    Args:
        work: Has the position, and gets the lag.
        hanging_seconds: A transaction that blocks a partition for longer is reported.

    Attributes:
        away: Set while no broker answers, to the time of the first look without an answer; Spark's own client takes
            minutes to notice.
    """

    def __init__(
        self,
        spec: StreamSpec,
        kafka: KafkaLog,
        bootstrap: str,
        work: WorkLog,
        hanging_seconds: float = HANGING_SECONDS,
    ) -> None:
        self.away: LastError | None = None
        self._spec: StreamSpec = spec
        self._query: _Query = _Query()
        self._bootstrap: str = bootstrap
        self._kafka: KafkaLog = kafka
        self._work: WorkLog = work
        self._open: OpenTransactions = OpenTransactions()
        self._hanging_seconds: float = hanging_seconds
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = background_thread(self._watch, "lag")

    def follow(self, reads: LogState) -> None:
        """A query begins on these topics."""
        self._query = _Query(frozenset(reads.topics), dict(reads.leader_epochs))

    @property
    def outdated(self) -> bool:
        """Whether the query is outdated.

        It is if a topic of the spec has appeared that it does not read, or if a partition has another leader. That
        leader may lack what was read, even if there is nothing new to read.
        """
        query = self._query
        moved = any(query.under.get(p, epoch) != epoch for p, epoch in query.leaders.items())
        return moved or bool(query.there - query.reads)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # The thread is not waited for: it may be waiting for an unavailable broker.
        self._stop.set()

    def _watch(self) -> None:
        reported: str | None = None
        while True:
            reported = self._report(reported)
            if self._stop.wait(_LAG_SECONDS):
                return

    def _report(self, reported: str | None) -> str | None:
        """Look, and log a failure unless it was logged before; returns the failure."""
        began = time.time()
        try:
            self._look()
            self.away = None
            return None
        except FrazilError as problem:
            if problem.message != reported:
                log.warning("the lag is not known: %s", problem.message)
            if not self._stop.is_set():
                self._work.lag_unknown(began)
            if not (isinstance(problem, KafkaUnavailableError) and problem.unreachable):
                self.away = None
            elif self.away is None:
                since = f"(since {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:%S} UTC)"
                self.away = LastError(f"{problem.message.rstrip('.')} {since}", "away", began, problem.fix)
            return problem.message

    def _look(self) -> None:
        # A query that begins meanwhile may know more than this look, so only the present query gets the result.
        source, query = self._spec.source, self._query
        if source.topics is None or not query.reads.issuperset(source.topics):
            query.there = frozenset(self._kafka.topics(source))
        now = time.time()
        ends = self._kafka.ends(self._work.position())
        query.leaders = ends.leader_epochs
        self._open.observe(ends, now)
        if not self._stop.is_set():
            self._work.lag(ends.latest, now, ends.undecided(), self._open.oldest())
        for partition in self._open.hanging(now, self._hanging_seconds):
            log.warning(
                "topic %s, partition %d: %d records have waited for %.0f s behind an open transaction.\n  Next: %s",
                *(partition.topic, partition.partition, ends.undecided()[partition]),
                *(now - self._open.since[partition], find_hanging(partition, self._bootstrap)),
            )
