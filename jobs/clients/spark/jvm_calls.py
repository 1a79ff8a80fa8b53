"""JVM calls: long ones that Ctrl-C, SIGTERM and Terminate may end, and what is raised by one as a sentence."""

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
    """The result of a call, which is made in a thread of its own while this one waits.

    Python runs the handlers of signals in the main thread. One that raises in the middle of py4j's conversation with
    the JVM may be swallowed there, and the next call then takes the answer to this one for its own. Where the main
    thread only waits, a signal ends the wait, and nothing else.

    Args:
        call: Converses with the JVM, for as long as it likes.
        cancel: Asks the JVM to give up what `call` waits for; called until it has.
        grace_seconds: How long `call` may take to end after that; it is left behind then.

    Raises:
        BaseException: What `call` raised, or what ended the wait.
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
        # What was to be given up may only begin now.
        while not answer.done() and time.monotonic() < deadline:
            with deferred_signals(), contextlib.suppress(Exception):
                cancel()
            wait([answer], _AGAIN_SECONDS)
        raise


def jvm_error_text(settings: Settings, problem: BaseException) -> str:
    """The first line of what lies at the bottom of an error, without secrets.

    Args:
        problem: Of py4j, of PySpark, or any other.
    """
    java: Any = getattr(problem, "java_exception", None)
    text = _deepest(java) if java is not None else f"{type(problem).__name__}: {problem}"
    return redacted(settings, first_line(text, type(problem).__name__))[:_LONGEST]


def _deepest(java: Any) -> str:
    """Of causes that only say that something below failed, the lowest tells most."""
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
    """Let Kafka's clients in the session's JVM ask for tokens at a URL, beside those that they may ask already."""
    jvm: Any = spark.sparkContext._jvm
    if url is None or jvm is None:
        return
    system = jvm.java.lang.System
    allowed = [each for each in str(system.getProperty(ALLOWED_URLS) or "").split(",") if each]
    if url not in allowed:
        system.setProperty(ALLOWED_URLS, ",".join([*allowed, url]))
