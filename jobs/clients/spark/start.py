"""Start of a Spark session: in a thread of its own beside what its caller does, or by the first who asks for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.system.signals import deferred_signals
from jobs.clients.spark.end import end_spark, jvm_is_gone
from jobs.clients.spark.executors import application_ended
from jobs.clients.spark.master import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START_SECONDS = 60.0
_WORKERS_SECONDS = 10.0


class SessionStart:
    """A session to come; two cores then start in about the time of the longer half.

    The thread also has Spark's Python workers started, which the first batch would otherwise wait for.

    Args:
        make: Starts the session.
        prepare: Called before, on the caller's thread, as the environment belongs to it.
        end: Ends a session and its JVM, or what a start has left of them.
        is_over: Whether the cluster has ended the application of a session, which is then begun anew.
    """

    def __init__(
        self,
        make: Callable[[], SparkSession],
        prepare: Callable[[], None] = lambda: None,
        end: Callable[[], None] = end_spark,
        is_over: Callable[[SparkSession], bool] = application_ended,
    ) -> None:
        self._make: Callable[[], SparkSession] = make
        self._is_over: Callable[[SparkSession], bool] = is_over
        self._guard: threading.RLock = threading.RLock()
        self._prepare: Callable[[], None] = prepare
        self._end: Callable[[], None] = end
        self._session: Future[SparkSession] | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> Future[SparkSession]:
        """Start it, unless it is under way; returns at once."""
        with self._guard:
            if self._session is None:
                self._prepare()
                session: Future[SparkSession] = Future()
                thread = threading.Thread(target=self._start, args=(session,), name="spark-start", daemon=True)
                thread.start()
                self._session, self._thread = session, thread
            return self._session

    def get(self) -> SparkSession:
        """The session, as soon as it is there; one whose application is over is replaced, with its JVM.

        Raises:
            Exception: What its start raised; who asks again has it tried again.
        """
        session = self.begin()
        try:
            if self._is_over(session.result()):
                with self._guard:
                    if self._session is session:
                        self._session = None
                        self._end()
                session = self.begin()
            return session.result()
        except BaseException:
            with self._guard:
                if session.done() and self._session is session:
                    self._session = None
            raise

    def end(self) -> None:
        """End the session and its JVM, also one that is only starting; without one, nothing."""
        if self._thread is None:
            return
        with deferred_signals():
            # What is left alone while it starts, JVM or workers, would start all the same.
            if self._session is not None:
                with contextlib.suppress(TimeoutError):
                    self._session.exception(_START_SECONDS)
            self._thread.join(_WORKERS_SECONDS)
            self._end()

    def _start(self, session: Future[SparkSession]) -> None:
        try:
            started = self._make()
        except BaseException as problem:
            # A JVM without a context: the next start has one of its own. Whatever happens, who waits is told.
            with contextlib.suppress(Exception):
                self._end()
            session.set_exception(problem)
            return
        session.set_result(started)
        context = started.sparkContext
        if is_local(str(context.master)):
            # What keeps them from starting keeps the first batch from it, too, and is told there.
            with contextlib.suppress(Exception):
                cores = context.defaultParallelism
                context.parallelize(range(cores), cores).foreachPartition(_nothing)


def _nothing(values: Iterable[int]) -> None:
    pass


class SessionOnDemand:
    """A session that the first who asks for it has started, and that is started anew if its JVM has ended since.

    Args:
        make: Starts the session.
        again: Whether a start that ended with a FrazilError is tried again by who asks next.
        is_gone: Whether the JVM has ended.
        end: Puts away what is left of a JVM that has ended.
    """

    def __init__(
        self,
        make: Callable[[], SparkSession],
        *,
        again: bool = True,
        is_gone: Callable[[], bool] = jvm_is_gone,
        end: Callable[[], None] = end_spark,
    ) -> None:
        self._make: Callable[[], SparkSession] = make
        self._again: bool = again
        self._is_gone: Callable[[], bool] = is_gone
        self._end: Callable[[], None] = end
        self._session: SparkSession | None = None
        self._problem: FrazilError | None = None
        self._unused: float | None = None

    def get(self) -> SparkSession:
        """The session; its start takes some seconds.

        Raises:
            Exception: What the start raised.
        """
        self._unused = None
        if self._problem is not None:
            raise self._problem
        if self._session is not None and self._is_gone():
            self._session = None
            self._end()
        if self._session is None:
            try:
                self._session = self._make()
            except FrazilError as problem:
                self._problem = None if self._again else problem
                raise
        return self._session

    def end_unused(self, seconds: float) -> bool:
        """End the session if nobody has asked for it for so long; who asks next has another one started.

        Called again and again, only where nobody works with it: the time begins with the first call that finds it.
        """
        if self._session is None:
            return False
        if self._unused is None:
            self._unused = time.monotonic()
        if time.monotonic() - self._unused < seconds:
            return False
        self._session = None
        self._end()
        return True
