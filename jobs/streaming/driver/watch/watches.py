"""Watches of a driver beside its batches: its JVM, its table's health, its secret files, and its registry."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from jobs.base.errors import FrazilError
from jobs.base.system.cpu import grandchildren_cpu_seconds
from jobs.base.system.mounted import mounted_text
from jobs.base.system.threads import background_thread
from jobs.clients.registry.known_schemas import RegistryRemadeError
from jobs.clients.spark.master import is_local
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.table_health import read_health
from jobs.config.documents.secrets import secrets_in
from jobs.config.services.trigger import Trigger, while_red
from jobs.config.settings.settings import Settings, secret_references
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.context.writer_schemas import WriterSchemas
from jobs.streaming.supervision.documents.control_request import ControlReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


EVERY_SECONDS = 10.0
# Idle workers use no CPU; one that waits for Kafka uses more of a core than this.
_AT_WORK = 0.003


class JvmWatch:
    """Asks the JVM every ten seconds, in a thread of its own, which hangs if the JVM hangs.

    The work log gets requests without an answer, and running tasks: Python workers of this host use CPU, or, if they
    also work for other streams, the stream's own tasks end.

    Args:
        ask: Sends the JVM a cheap request.
        local: Whether tasks run on this host.
        tasks_ended: Returns another value after each finished task of the stream; None if the workers are its own.
    """

    def __init__(
        self,
        work: WorkLog,
        ask: Callable[[], object],
        *,
        local: bool,
        tasks_ended: Callable[[], Hashable] | None = None,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self.application: str | None = None
        self._work: WorkLog = work
        self._ask: Callable[[], object] = ask
        self._local: bool = local
        self._tasks_ended: Callable[[], Hashable] | None = tasks_ended
        self._ended: Hashable = None
        self._every: float = every_seconds
        self._used: float | None = None
        self._looked: float = time.monotonic()
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = background_thread(self._watch, "jvm watch")

    @classmethod
    def of(
        cls,
        session: SparkSession,
        work: WorkLog,
        tasks_ended: Callable[[], Hashable] | None = None,
        before: JvmWatch | None = None,
    ) -> JvmWatch:
        """The started watch of a session's JVM; the former one goes on if the application is the same."""
        context = session.sparkContext
        if before is not None:
            if before.application == context.applicationId:
                return before
            before.end()
        jvm: Any = context._jvm
        local = is_local(str(context.master))
        made = cls(work, lambda: jvm.System.nanoTime(), local=local, tasks_ended=tasks_ended)
        made.application = context.applicationId
        return made.start()

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def end(self) -> None:
        """Stop watching; the thread is not waited for, as it may hang in a request."""
        self._stop.set()
        self._work.jvm_answered()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self._work.jvm_asked(time.time())
            # A dead JVM refuses at once. That is noticed elsewhere, and is no silence.
            with contextlib.suppress(Exception):
                self._ask()
                self._look_at_work()
            self._work.jvm_answered()

    def _look_at_work(self) -> None:
        if self._tasks_ended is not None:
            ended = None
            with contextlib.suppress(Exception):
                ended = self._tasks_ended()
            if ended is not None and ended != self._ended:
                self._ended = ended
                self._work.made_progress(time.time())
            return
        now, used = time.monotonic(), grandchildren_cpu_seconds() if self._local else None
        if used is None:
            return
        before, seconds = self._used, now - self._looked
        self._used, self._looked = used, now
        if before is None or abs(used - before) > _AT_WORK * seconds:
            self._work.made_progress(time.time())


_HEALTH_SECONDS = 60.0


class HealthWatch:
    """Tells one query whether its stream's main table is red, by the newest measurement, read each minute.

    Args:
        stream, trigger: Name and trigger of the stream.
        store: Returns the table's part of the state store; called only if the file needs it.
        clock: The monotonic clock; `now`: returns seconds since 1970.
    """

    def __init__(
        self,
        stream: str,
        trigger: Trigger,
        store: Callable[[], StateStore],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream: str = stream
        self._slower: bool = while_red(trigger) is not None
        self._store: Callable[[], StateStore] = store
        self._clock: Callable[[], float] = clock
        self._now: Callable[[], float] = now
        self._looked_at: float | None = None
        self._red: bool = False

    def red(self) -> bool:
        """Whether the table is red and the file asks for it. An unreadable store changes nothing."""
        due = self._looked_at is None or self._clock() - self._looked_at >= _HEALTH_SECONDS
        if self._slower and due:
            self._looked_at = self._clock()
            with contextlib.suppress(OSError):
                self._look()
        return self._red

    def _look(self) -> None:
        before, health = self._red, read_health(self._store())
        self._red = health is not None and health.red(self._now())
        if self._red != before and health is not None:
            said = "lands less often from here on" if self._red else "lands as often as ever again"
            log.info("stream %s: its table has a health of %d of 100; it %s", self._stream, health.score, said)


LOOK_SECONDS = 5.0


def secret_files(spec: StreamSpec, settings: Settings) -> tuple[str, ...]:
    """Mounted files with secrets that a stream uses, each once."""
    secrets = (*secret_references(settings, sources=False), *secrets_in(spec))
    return tuple(dict.fromkeys(path for secret in secrets for path in secret.files))


class SecretWatch:
    """Compares digests under a random key, so it keeps neither secrets nor comparable values."""

    def __init__(self, files: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._key: bytes = os.urandom(16)
        self._clock: Callable[[], float] = clock
        self._digests: dict[str, bytes | None] = {path: self._digest(path) for path in files}
        self._changed: bool = False
        self._looked: float = clock()

    def changed(self, *, now: bool = False) -> bool:
        """Whether a file holds another secret. A file that cannot be read just now has not changed.

        Args:
            now: Whether to look at once; otherwise the files are read every five seconds.
        """
        if not self._changed and self._digests and (now or self._clock() - self._looked >= LOOK_SECONDS):
            self._looked = self._clock()
            found = {path: self._digest(path) for path in self._digests}
            self._changed = any(each is not None and each != self._digests[path] for path, each in found.items())
        return self._changed

    def wait(self, control: ControlReader, seconds: float) -> None:
        """Wait up to some seconds for another secret, unless an operator requests something."""
        deadline = self._clock() + seconds
        while control.now() == "run" and self._clock() < deadline and not self.changed(now=True):
            control.wait_while("run", 1.0)

    def __bool__(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._digests)

    def _digest(self, path: str) -> bytes | None:
        try:
            return hashlib.blake2b(mounted_text(path).encode(), key=self._key).digest()
        except (OSError, ValueError):
            return None


HOUR = 3600.0
_AGAIN_SECONDS = 60.0


class RegistryWatch:
    """Compares in a thread of its own, so that a slow or unavailable registry delays nothing.

    A registry that looks rebuilt is checked twice, a minute apart: it may not have loaded all of its schemas yet. The
    finding is kept in `WriterSchemas.remade`, and the landing of records ends there.

    Args:
        every: Seconds between comparisons; the first one comes this long after the opening, which compares itself.
        again: Seconds until the second check.
    """

    def __init__(self, schemas: WriterSchemas, every: float = HOUR, again: float = _AGAIN_SECONDS) -> None:
        self._schemas: WriterSchemas = schemas
        self._every: float = every
        self._again: float = again
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = background_thread(self._watch, "registry")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching; the thread is not waited for, as it may be waiting for an unavailable registry."""
        self._stop.set()

    def _watch(self) -> None:
        pause = self._every
        suspected = False
        while not self._stop.wait(pause):
            found = self._compared()
            if found is not None and suspected:
                log.error("%s", found.message)
                self._schemas.remade = found
                return
            if found is not None:
                log.warning("looked at again in %.0f s: %s", self._again, found.message)
            suspected, pause = found is not None, self._again if found is not None else self._every

    def _compared(self) -> RegistryRemadeError | None:
        try:
            self._schemas.compare()
        except RegistryRemadeError as problem:
            return problem
        except (FrazilError, OSError) as problem:
            log.warning("known schemas are not compared with the registry: %s", type(problem).__name__)
        except Exception:
            # No error here is a reason to end a stream that lands records.
            log.warning("the comparison with the registry goes on after", exc_info=True)
        return None


@contextlib.contextmanager
def registry_watch(schemas: WriterSchemas | None) -> Iterator[None]:
    """Watch the registry of a stream during the block, if its records need one."""
    watch = RegistryWatch(schemas) if schemas is not None else None
    if watch is not None:
        watch.start()
    try:
        yield
    finally:
        if watch is not None:
            watch.end()
