"""Looking up how far the log goes beyond the stream's position, while a driver runs."""

from __future__ import annotations

import logging
import threading
import time

from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaLog
from jobs.spec.settings import Settings
from jobs.supervise.beater import Beater

log = logging.getLogger(__name__)

_LAG_SECONDS = 10.0


class LagWatch:
    """Asks Kafka every ten seconds, in a thread of its own, so that a Kafka that is slow delays nothing.

    Args:
        settings: Where Kafka is.
        beater: Knows the position, and is told the lag.
    """

    def __init__(self, settings: Settings, beater: Beater) -> None:
        self._kafka: KafkaLog = KafkaLog(settings.kafka)
        self._beater: Beater = beater
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = threading.Thread(target=self._watch, name="lag", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        # Not waited for: it may be in the middle of a question to a broker that is away.
        self._stop.set()

    def _watch(self) -> None:
        told: str | None = None
        while True:
            try:
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
