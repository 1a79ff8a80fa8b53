"""Start of a Spark session: in a background thread, or on demand."""

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
    """Session that starts in a background thread, so that a start on two cores takes about as long as its longer half.

    The thread also starts Spark's Python workers, for which the first batch would otherwise wait.

    Args:
        make: Starts the session.
        prepare: Called first, on the caller's thread, because it sets environment variables.
        end: Ends a session and its JVM, or what a failed start has left of them.
        is_over: Whether the cluster has ended the application of a session, which is then replaced.
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
        """Begin the start unless it is under way; return at once."""
        with self._guard:
            if self._session is None:
                self._prepare()
                session: Future[SparkSession] = Future()
                thread = threading.Thread(target=self._start, args=(session,), name="spark-start", daemon=True)
                thread.start()
                self._session, self._thread = session, thread
            return self._session

    def get(self) -> SparkSession:
        """Wait for the session and return it; a session whose application has ended is replaced, with its JVM.

        Raises:
            Exception: The exception of the start; the next call tries again.
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
        """End the session and its JVM, even while they start; without a session nothing happens."""
        if self._thread is None:
            return
        with deferred_signals():
            # Wait for a start under way: JVM and workers would start anyway.
            if self._session is not None:
                with contextlib.suppress(TimeoutError):
                    self._session.exception(_START_SECONDS)
            self._thread.join(_WORKERS_SECONDS)
            self._end()

    def _start(self, session: Future[SparkSession]) -> None:
        try:
            started = self._make()
        except BaseException as problem:
            # End a JVM without a context: the next start makes its own. A caller that waits gets the exception anyway.
            with contextlib.suppress(Exception):
                self._end()
            session.set_exception(problem)
            return
        session.set_result(started)
        context = started.sparkContext
        if is_local(str(context.master)):
            # If the workers cannot start, the first batch fails as well and reports why.
            with contextlib.suppress(Exception):
                cores = context.defaultParallelism
                context.parallelize(range(cores), cores).foreachPartition(_nothing)


def _nothing(values: Iterable[int]) -> None:
    pass


class SessionOnDemand:
    """Session that starts at its first use, and again if its JVM has ended since.

    Args:
        make: Starts the session.
        again: Whether the next call tries again after a start ended with a FrazilError.
        is_gone: Whether the JVM has ended.
        end: Cleans up after a JVM that has ended.
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
        """Return the session; its start takes some seconds.

        Raises:
            Exception: The exception of the start.
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
        """End the session if it was not requested for `seconds`; the next request starts another one.

        To be called repeatedly while nobody uses the session: the time begins with the first such call.
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
