"""A Spark session that starts in a thread of its own, while its caller imports, opens tables and decides."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jobs.runtime.signals import deferred_signals
from jobs.runtime.spark_end import end_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKERS_SECONDS = 10.0


class SessionStart:
    """A session to come; two cores then start in about the time of the longer half.

    The thread also has Spark's Python workers started, which the first batch would otherwise wait for.

    Args:
        make: Starts the session.
    """

    def __init__(self, make: Callable[[], SparkSession]) -> None:
        self._make: Callable[[], SparkSession] = make
        self._session: Future[SparkSession] = Future()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start it, unless it is under way; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
            self._thread.start()

    def get(self) -> SparkSession:
        """The session, as soon as it is there.

        Raises:
            Exception: What its start raised.
        """
        self.begin()
        return self._session.result()

    def end(self) -> None:
        """End the session and its JVM, also one that is only starting; without one, nothing."""
        if self._thread is not None:
            with deferred_signals():
                # What is left alone while it starts, JVM or workers, would start all the same.
                self._session.exception()
                self._thread.join(_WORKERS_SECONDS)
                end_spark()

    def _start(self) -> None:
        try:
            session = self._make()
        except BaseException as problem:
            self._session.set_exception(problem)
            return
        self._session.set_result(session)
        context = session.sparkContext
        # What keeps them from starting keeps the first batch from it, too, and is told there.
        with contextlib.suppress(Exception):
            cores = context.defaultParallelism
            context.parallelize(range(cores), cores).foreachPartition(_nothing)


def _nothing(values: Iterable[int]) -> None:
    pass
