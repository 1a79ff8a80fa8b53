"""Thread that publishes a stream's dead letters to their topic, and never delays the stream."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.config.stream.error_handling import DeadLetterTopic, dead_letter_secrets
from jobs.config.stream.models import StreamSpec
from jobs.streaming.dead_letter_publisher.outbox import REFRESH_SECONDS, Outbox
from jobs.streaming.dead_letter_publisher.position import PositionStore
from jobs.streaming.dead_letter_publisher.topic import OutboxError, cluster_of
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.tables.commit.stamp.errors import FencedError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
# Waiting does not correct a refused password or a missing topic, and many brokers lock a user after repeated attempts.
_LASTING_PAUSE = 300.0
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OutboxState:
    """State of the publisher.

    Attributes:
        unpublished: Dead letters in the table that the topic lacks; None if unknown.
        problem: Reason why they are not published, in a sentence; None without one.
    """

    unpublished: int | None = None
    problem: str | None = None
    fix: str | None = None


class OutboxThread:
    """Publishes dead letters in a thread of its own when it is woken, and retries after failures."""

    def __init__(
        self,
        stream: str,
        outbox: Outbox,
        on_change: Callable[[OutboxState], None] = lambda state: None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._stream: str = stream
        self._outbox: Outbox = outbox
        self._on_change: Callable[[OutboxState], None] = on_change
        self._redact: Callable[[str], str] = redact
        self._changed: threading.Condition = threading.Condition()
        self._state: OutboxState = OutboxState()
        self._woken: bool = True
        self._stopping: bool = False
        self._failures: int = 0
        self._lasting: bool = False
        self._begun: int = 0
        self._ended: int = 0
        self._thread: threading.Thread = background_thread(self._work, "dead-letter-topic")
        self._thread.start()

    @property
    def state(self) -> OutboxState:
        """The newest state."""
        return self._state

    def wake(self) -> None:
        """Signal possible new dead letters; returns at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def finish(self, timeout: float) -> OutboxState:
        """Publish what is in the table now, however long it takes; give up after failing for `timeout` seconds."""
        with self._changed:
            wanted = self._begun + 1
            self._woken, self._failures = True, 0
            self._changed.notify_all()
            deadline = time.monotonic() + timeout
            while self._thread.is_alive():
                if self._ended >= wanted:
                    if not self._failures or self._lasting or time.monotonic() > deadline:
                        break
                elif time.monotonic() > deadline and self._failures:
                    break
                self._changed.wait(0.2)
            return self._state

    def stop(self) -> None:
        """Stop publishing; waits some seconds for what is under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping or self._due(), self._pause())
                    # A wake-up that was not handled yet gets one last attempt.
                    if self._stopping and not self._due():
                        return
                    self._woken = False
                    self._begun += 1
                if not self._attempt():
                    return
        finally:
            self._outbox.close()

    def _due(self) -> bool:
        # While the cluster is unavailable, new dead letters are no reason to try more often.
        return self._woken and not self._failures

    def _pause(self) -> float:
        if not self._failures:
            return REFRESH_SECONDS
        return _LASTING_PAUSE if self._lasting else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._failures - 1))

    def _attempt(self) -> bool:
        """Publish the waiting dead letters; False if this process has lost the stream."""
        try:
            count = self._outbox.publish(self._progress, lambda: not self._stopping)
            if count:
                log.info("%d dead letters are published", count)
            self._ends(None)
        except FencedError:
            self._ends(OutboxError("this driver has lost the stream", lasting=True))
            return False
        except Exception as problem:
            # After any error the stream goes on, and the dead letters are in the table.
            self._ends(problem)
        return True

    def _progress(self, waiting: int) -> None:
        self._change(OutboxState(waiting, self._state.problem, self._state.fix))

    def _ends(self, problem: Exception | None) -> None:
        if problem is None:
            state = OutboxState(self._outbox.waiting)
            if self._failures:
                log.info("dead letters of stream %s are published again", self._stream)
        else:
            message = problem.message if isinstance(problem, FrazilError) else f"{type(problem).__name__}: {problem}"
            text = self._redact(message)
            fix = problem.fix if isinstance(problem, FrazilError) else None
            if text != self._state.problem and not self._stopping:
                log.warning("dead letters of stream %s are not published: %s", self._stream, text)
            state = OutboxState(self._waiting(), text, fix and self._redact(fix))
        with self._changed:
            self._failures = self._failures + 1 if problem else 0
            self._lasting = isinstance(problem, FrazilError) and getattr(problem, "lasting", True)
            self._ended = self._begun
            self._changed.notify_all()
        self._change(state)

    def _waiting(self) -> int | None:
        try:
            return self._outbox.count()
        except Exception:
            # The table is unavailable as well, so the number of waiting dead letters is unknown.
            log.debug("the waiting dead letters cannot be counted", exc_info=True)
            return None

    def _change(self, state: OutboxState) -> None:
        if state != self._state:
            self._state = state
            self._on_change(state)


def position_store(spec: StreamSpec, settings: Settings, topic: DeadLetterTopic) -> PositionStore:
    """The stream's own copy of its position in the topic."""
    kafka = cluster_of(topic, settings.kafka)
    servers = "" if kafka.address_file else kafka.require_bootstrap()
    store = stream_folder(settings, spec.stream).store
    return PositionStore(store, topic.name, servers, spec.dead_letter_table)


@contextlib.contextmanager
def outbox_thread(
    stream: OpenStream, settings: Settings, on_change: Callable[[OutboxState], None] = lambda state: None
) -> Iterator[OutboxThread | None]:
    """Publish the stream's dead letters during the block, if its spec names a topic for them."""
    topic = stream.spec.errors.topic
    if topic is None:
        yield None
        return
    spec = stream.spec
    kafka = cluster_of(topic, settings.kafka)
    # A connection of its own: another thread uses the stream's.
    catalog = connect_catalog(settings)

    def check() -> None:
        if lost := stream.lease.lost:
            raise lost

    outbox = Outbox(
        spec.stream,
        spec.dead_letter_table,
        topic,
        kafka,
        lambda: catalog.load_table(spec.dead_letter_table),
        position_store(spec, settings, topic),
        stream.epoch,
        check,
    )
    secrets = tuple(dead_letter_secrets(spec.errors))
    publishing = OutboxThread(spec.stream, outbox, on_change, lambda text: redacted(settings, text, secrets))
    try:
        yield publishing
    finally:
        publishing.stop()
        catalog.close()
