"""One stream in a group's driver: its own heartbeat, requests, lease and log, in threads of the group's process."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.threads import CURRENT_STREAM, background_thread
from jobs.clients.spark.end import spark_is_over
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.documents.secrets import secrets_in
from jobs.config.redaction import redacted
from jobs.config.settings.generation import generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.last_word import run_to_last_word
from jobs.streaming.driver.process.logs import driver_log, stream_logging
from jobs.streaming.driver.process.mirror_process import MirrorProcess
from jobs.streaming.driver.process.query import StreamQuery
from jobs.streaming.driver.process.runner import SharedDriver, StreamRunner
from jobs.streaming.supervision.documents.control_request import ControlReader
from jobs.streaming.supervision.documents.heartbeat import (
    HEARTBEAT_SECONDS,
    SHARED_HEARTBEAT_SECONDS,
    Heartbeat,
)
from jobs.streaming.supervision.processes.termination import Timeouts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

EXIT_JVM_GONE = 4


def begin_again(group: str, what: str) -> NoReturn:
    """End the process of a group that has lost its JVM, or its Spark application.

    No stream writes a last heartbeat, so the watchdog starts the group again, and each stream with it.
    """
    log.error("%s of group %s has ended: all of its streams begin again", what, group)
    logging.shutdown()
    os._exit(EXIT_JVM_GONE)


class CarriedStream:
    """One stream of a group, from its start to its last heartbeat.

    Args:
        metrics_url: URL of the metrics of all streams of the group.
    """

    def __init__(
        self,
        spec: StreamSpec,
        settings: Settings,
        folder: StreamFolder,
        attempt: int,
        group: str,
        metrics_url: str,
        *,
        session: Callable[[], SparkSession],
        mirrors: MirrorProcess | None = None,
    ) -> None:
        self.attempt: int = attempt
        self.stream: str = spec.stream
        self._spec: StreamSpec = spec
        self._settings: Settings = settings
        self._folder: StreamFolder = folder
        self._group: str = group
        self._session: Callable[[], SparkSession] = session
        self._mirrors: MirrorProcess = mirrors or MirrorProcess(())
        self._shared: SharedDriver = SharedDriver(metrics_url)
        self._control: ControlReader = ControlReader(folder.store, attempt)
        self._runner: StreamRunner | None = None
        self._asked_at: float | None = None
        self._cancelled: bool = False
        self._left: bool = False
        token = CURRENT_STREAM.set(spec.stream)
        try:
            every = SHARED_HEARTBEAT_SECONDS if folder.store.shared else HEARTBEAT_SECONDS
            given = (folder.store, spec.stream, generation(spec, settings), attempt, driver_log(folder.root))
            self._heartbeat: HeartbeatThread = HeartbeatThread(*given, self._mirrors.ensure, every)
            self._heartbeat.change(group=group)
            self._thread: threading.Thread = background_thread(self._carry, spec.stream)
        finally:
            CURRENT_STREAM.reset(token)

    def start(self) -> None:
        """Write the heartbeat of a start, and begin."""
        self._heartbeat.write()
        self._thread.start()

    @property
    def lives(self) -> bool:
        """Whether the stream has not ended."""
        return self._thread.is_alive()

    def beat(self) -> Heartbeat:
        """The present heartbeat."""
        return self._heartbeat.current()

    def end(self) -> None:
        """Let it end after its batch, whatever its operator has requested."""
        self._control.signalled = True

    def look(self, timeouts: Timeouts) -> None:
        """Cancel its batch if it was asked to end and exceeds the grace; call this periodically."""
        if not self.lives or self._control.now() != "end":
            self._asked_at, self._cancelled = None, False
            return
        now = time.monotonic()
        self._asked_at = self._asked_at if self._asked_at is not None else now
        query = self._runner.query if self._runner is not None else None
        if now - self._asked_at > timeouts.grace_seconds and not self._cancelled and query is not None:
            self._cancelled = True
            log.warning("stream %s does not end: its batch is given up", self.stream)
            # A thread of its own, as the JVM may hang.
            background_thread(self._cancel, "cancel", query).start()

    def _cancel(self, query: StreamQuery) -> None:
        with contextlib.suppress(Exception):
            query.cancel()

    def leave(self) -> None:
        """From now on, report any end as an end of this process: its Spark is about to end."""
        self._left = True

    def join(self, seconds: float) -> None:
        """Wait up to some seconds for its end."""
        self._thread.join(seconds)

    def _carry(self) -> None:
        secrets = tuple(secrets_in(self._spec))
        with contextlib.ExitStack() as entered:
            heartbeat = entered.enter_context(self._heartbeat)
            entered.callback(self._mirrors.end)
            try:
                entered.enter_context(stream_logging(self._folder.root, self._settings, self.stream, secrets))
            except FrazilError as problem:
                # The group's log has it anyway.
                log.warning("%s", problem)
            self._control.superseded = lambda: heartbeat.superseded
            generation = heartbeat.current().generation
            log.info("stream %s, attempt %d, generation %s", self.stream, self.attempt, generation)
            state, error = run_to_last_word(
                self._made_runner, self._control, lambda text: redacted(self._settings, text, secrets)
            )
            if self._left:
                state, error = "terminated", None
            elif spark_is_over():
                begin_again(self._group, "Spark")
            step("before_last_word")
            heartbeat.change(state=state, error=error)

    def _made_runner(self) -> StreamRunner:
        given = (self._spec, self._settings, self._heartbeat, self._control, self._spark, self._shared)
        self._runner = StreamRunner(*given)
        return self._runner

    def _spark(self) -> SparkSession:
        """A session of its own in the group's Spark, with its own pool in Spark's scheduler."""
        session = self._session()
        # Jobs of a query belong to the pool of the thread that started it.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", self.stream)
        return session
