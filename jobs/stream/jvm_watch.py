"""Watch of a driver's JVM: whether it answers, and the tasks of a batch work, while the main thread waits for both."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Self

from jobs.spark.master import is_local
from jobs.stream.progress import WorkLog
from jobs.system.cpu import grandchildren_cpu_seconds
from jobs.system.threads import background_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_SECONDS = 10.0
# Workers that only wait for their next task use nothing; one that waits for Kafka uses more of a core than this.
_AT_WORK = 0.003


class JvmWatch:
    """Asks the JVM every ten seconds, in a thread of its own, which hangs where the JVM does.

    What comes of it stands in the work log: a question that is not answered, and when the Python workers, in which
    tasks run, were last seen to use the processor. They are seen only if they run on this host. Where they work for
    other streams as well, it is the stream's own tasks that are seen to end.

    Args:
        work: Told.
        ask: Asks the JVM something that costs nothing.
        local: Whether tasks run on this host.
        tasks_ended: Says something else after each task of the stream that has ended; None if the workers are its own.
        every_seconds: Between two questions.

    Attributes:
        application: Spark's id of the session's.
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
        """The watch of a session's JVM, started; the one before goes on if it is of the same application."""
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
        """Begin to watch."""
        self._thread.start()
        return self

    def end(self) -> None:
        """Watch no longer; not waited for, since it may hang in a question."""
        self._stop.set()
        self._work.jvm_answered()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self._work.jvm_asked(time.time())
            # A JVM that is gone refuses at once: that is noticed elsewhere, and is no silence.
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
