"""Looking up how far the log goes beyond the stream's position, while a driver runs."""

from __future__ import annotations

import logging
import threading
import time
from typing import Self

from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaLog
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.beater import Beater

log = logging.getLogger(__name__)

_LAG_SECONDS = 10.0


class LagWatch:
    """Asks Kafka every ten seconds, in a thread of its own, so that a Kafka that is slow delays nothing.

    Args:
        spec: The stream.
        settings: Where Kafka is.
        beater: Knows the position, and is told the lag.

    Attributes:
        known: The topics that the query at hand reads.
        unread: A topic that the spec names has appeared since, which the query does not read; a query by pattern finds
            new topics itself.
    """

    def __init__(self, spec: StreamSpec, settings: Settings, beater: Beater) -> None:
        self.known: frozenset[str] = frozenset()
        self._spec: StreamSpec = spec
        self._there: frozenset[str] = frozenset()
        self._kafka: KafkaLog = KafkaLog(settings.kafka)
        self._beater: Beater = beater
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = threading.Thread(target=self._watch, name="lag", daemon=True)

    @property
    def unread(self) -> bool:
        """Whether such a topic is there."""
        return bool(self._there - self.known)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Not waited for: it may be in the middle of a question to a broker that is away.
        self._stop.set()

    def _watch(self) -> None:
        told: str | None = None
        while True:
            try:
                if self._spec.source.topics is not None and not self.known.issuperset(self._spec.source.topics):
                    self._there = frozenset(self._kafka.topics(self._spec.source))
                latest = self._kafka.latest(self._beater.work.position())
                told = None
                if not self._stop.is_set():
                    self._beater.work.lag(latest, time.time())
            except FrazilError as problem:
                if problem.message != told:
                    told = problem.message
                    log.warning("the lag is not known: %s", told)
            if self._stop.wait(_LAG_SECONDS):
                return
