"""Spark application that the tests of one process share: a session for each file, and none for tests that ask for none.

Spark keeps a catalog once it is used, under its name, for the whole session. So each file gets a session of its own.
Tests without the fixture may run commands that end Spark when they are done: for them there is none to end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jobs.clients.spark.end import end_spark, spark_is_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSpark:
    """Application of one process, started when a session is first asked for, and again if a test has ended it.

    Args:
        start: Starts an application, and returns its first session.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start: Callable[[], SparkSession] = start
        self._first: SparkSession | None = None

    def new_session(self) -> SparkSession:
        """A session with catalogs and settings of its own."""
        from pyspark import SparkContext

        context = self._first.sparkContext if self._first is not None else None
        if context is None or context is not SparkContext._active_spark_context or spark_is_over():
            end_spark()
            self._first = self._start()
        assert self._first is not None
        return self._first.newSession()


@contextlib.contextmanager
def without_spark() -> Iterator[None]:
    """A block in which this process has no Spark; one that is started in it ends with it."""
    if "pyspark" not in sys.modules:
        yield
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    places = [(SparkContext, name) for name in ("_gateway", "_jvm", "_active_spark_context")]
    places += [(SparkSession, name) for name in ("_instantiatedSession", "_activeSession")]
    kept: list[tuple[Any, str, Any]] = [(owner, name, getattr(owner, name)) for owner, name in places]
    if SparkContext._gateway is None:
        yield
        return
    for owner, name, _ in kept:
        setattr(owner, name, None)
    try:
        yield
    finally:
        if SparkContext._gateway is not None:
            end_spark()
        for owner, name, value in kept:
            setattr(owner, name, value)
