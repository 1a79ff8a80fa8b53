"""End of Spark's session and JVM: how to notice it and bring it about. PySpark leaves it to the end of the process."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from typing import Any

_GRACE_SECONDS = 10.0


def jvm_is_gone() -> bool:
    """Whether this process started a JVM for Spark that has ended since, by itself or killed."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def spark_is_over() -> bool:
    """Whether this process started a Spark that no longer works: its JVM has ended, or its context was stopped.

    A context stops itself after a fatal error, while the JVM lives on.
    """
    if jvm_is_gone():
        return True
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return context is not None and is_stopped(context)


def is_stopped(context: Any) -> bool:
    """Whether a context was stopped although its JVM lives; False if the JVM does not answer."""
    with contextlib.suppress(Exception):
        return bool(context._jsc.sc().isStopped())
    return False


def end_spark(grace_seconds: float = _GRACE_SECONDS) -> None:
    """Stop the Spark session of this process, if there is one, and wait until its JVM has ended.

    A later session starts its own JVM.

    Args:
        grace_seconds: How long the JVM may take to end by itself.
    """
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Interrupted connections log errors.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    gateway = SparkContext._gateway
    session = SparkSession._instantiatedSession
    if session is not None:
        with contextlib.suppress(Exception):
            session.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    _forget_context()
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        _wait_for_end(process, grace_seconds)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _forget_context() -> None:
    """Clear references that `stop` leaves if the JVM does not answer: the next session would get that context."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        with contextlib.suppress(Exception):
            server.shutdown()
    SparkContext._active_spark_context = None


def _wait_for_end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    # The JVM ends when its standard input ends.
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for nudge, seconds in (
        (lambda: None, grace_seconds),
        (process.terminate, _GRACE_SECONDS),
        (process.kill, _GRACE_SECONDS),
    ):
        nudge()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
