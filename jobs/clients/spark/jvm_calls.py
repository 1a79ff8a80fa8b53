"""JVM calls: interruptible long calls, and their errors as a sentence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from jobs.base.errors import first_line
from jobs.base.system.signals import deferred_signals
from jobs.config.redaction import redacted
from jobs.config.services.security import ALLOWED_URLS
from jobs.config.settings.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LONGEST = 600


T = TypeVar("T")

_GRACE_SECONDS = 10.0
_AGAIN_SECONDS = 0.25


def interruptible(call: Callable[[], T], cancel: Callable[[], object], grace_seconds: float = _GRACE_SECONDS) -> T:
    """Return the result of a call, which runs in its own thread while this one waits.

    Python runs signal handlers in the main thread. If a handler raises while py4j talks to the JVM, py4j may swallow
    the exception, and the next call then reads the answer to this one. If the main thread only waits, a signal just
    ends the wait.

    Args:
        call: Long call to the JVM.
        cancel: Asks the JVM to cancel the work of `call`; repeated until `call` has ended.
        grace_seconds: How long `call` may take to end after that; then it is abandoned.

    Raises:
        BaseException: The exception of `call`, or the one that ended the wait.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as problem:
            answer.set_exception(problem)

    try:
        threading.Thread(target=ask, name="jvm call", daemon=True).start()
        return answer.result()
    except BaseException:
        deadline = time.monotonic() + grace_seconds
        # The work to cancel may begin only now.
        while not answer.done() and time.monotonic() < deadline:
            with deferred_signals(), contextlib.suppress(Exception):
                cancel()
            wait([answer], _AGAIN_SECONDS)
        raise


def jvm_error_text(settings: Settings, problem: BaseException) -> str:
    """Return the first line of an error's deepest cause, without secrets.

    Args:
        problem: Exception of py4j, PySpark, or any other.
    """
    java: Any = getattr(problem, "java_exception", None)
    text = _deepest(java) if java is not None else f"{type(problem).__name__}: {problem}"
    return redacted(settings, first_line(text, type(problem).__name__))[:_LONGEST]


def _deepest(java: Any) -> str:
    """Return the text of the deepest cause: those above only say that something below failed."""
    try:
        cause = java
        for _ in range(20):
            below = cause.getCause()
            if below is None:
                break
            cause = below
        return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    except Exception as gone:
        return f"the JVM does not say why ({type(gone).__name__})"


def allow_token_url(spark: SparkSession, url: str | None) -> None:
    """Allow Kafka's clients in the session's JVM to request tokens at one more URL."""
    jvm: Any = spark.sparkContext._jvm
    if url is None or jvm is None:
        return
    system = jvm.java.lang.System
    allowed = [each for each in str(system.getProperty(ALLOWED_URLS) or "").split(",") if each]
    if url not in allowed:
        system.setProperty(ALLOWED_URLS, ",".join([*allowed, url]))
