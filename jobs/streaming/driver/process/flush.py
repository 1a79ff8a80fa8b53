"""Flush of a stream: whether its driver has to land at once, and what landed since the request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from jobs.base.errors import FrazilError
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.supervision.documents.flush_request import FlushReader
from jobs.streaming.supervision.documents.heartbeat import Flush, Work
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition

log = logging.getLogger(__name__)


class FlushWatch:
    """Follows the flush requests to one driver.

    A flush is done once the stream has reached the ends that its topics had when the driver saw the request.

    Args:
        heartbeat: Heartbeat of the driver; reports the progress of the flush.
        now: Returns the time, seconds since 1970.
    """

    def __init__(self, heartbeat: HeartbeatThread, now: Callable[[], float] = time.time) -> None:
        self._heartbeat: HeartbeatThread = heartbeat
        self._now: Callable[[], float] = now
        self._reader: FlushReader = FlushReader(heartbeat.store)
        self._target: Positions = {}
        self._known: set[TopicPartition] = set()
        self._before: Work = Work()
        self._hastened: int | None = None

    def look(self, log_state: Callable[[], LogState]) -> bool:
        """Note requests and progress; returns whether records of a flush have still to land.

        Args:
            log_state: Queries the present state of the subscribed topics, including topics that the query does not read
                yet.
        """
        work = self._heartbeat.work
        flush = work.work(self._now()).flush
        if (number := self._reader.number()) > flush.number:
            try:
                now = log_state()
            except FrazilError as problem:
                log.info("flush %d waits: %s", number, problem.message)
                return False
            self._known = set(work.position())
            self._target = {p: at for p, at in now.latest.items() if p in self._known or at > now.earliest[p]}
            self._before = work.work(self._now())
            self._hastened = None
            flush = Flush(number)
            work.flushing(flush)
            log.info("flush %d is asked", number)
        if not flush.number or flush.done:
            return False
        return not self._told(flush)

    def hastened(self, batches: int) -> bool:
        """Whether the batch after this many was hastened already; marks it as hastened."""
        before, self._hastened = self._hastened, batches
        return before == batches

    def _told(self, flush: Flush) -> bool:
        work, before = self._heartbeat.work.work(self._now()), self._before
        position = self._heartbeat.work.position()
        # The query no longer reads a known partition if it was dropped, so nothing of it is left to land.
        done = all(position.get(p, at if p in self._known else -1) >= at for p, at in self._target.items())
        self._known |= position.keys()
        self._heartbeat.work.flushing(
            msgspec.structs.replace(
                flush,
                done=done,
                batches=work.batches - before.batches,
                read=work.read - before.read,
                landed=work.landed - before.landed,
                dead=work.dead - before.dead,
            )
        )
        if done:
            self._heartbeat.write()
        return done
