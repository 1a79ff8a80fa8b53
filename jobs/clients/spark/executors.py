"""Executors of a cluster: whether a batch has any, what became of those that it lost, and what can be done about it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jobs.base.errors import FrazilError
from jobs.base.system.threads import background_thread
from jobs.clients.spark.end import is_stopped
from jobs.clients.spark.master import is_local, standalone_addresses, unanswered

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

AWAITED_SECONDS = 10.0
"""For how long a batch goes without an executor before that is said."""
FORGOTTEN_SECONDS = 20.0
"""For how long, with a master that answers, before the application is registered anew."""
_EVERY_SECONDS = 2.0
_ASK_SECONDS = 2.0
# A part of the name of its class, on whichever cluster.
_EXECUTOR = b"ExecutorBackend"
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)]*\)(?: Reason: ([^\n]*))?")


class ExecutorsLostError(FrazilError):
    """Executors ended while they had tasks of a batch.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: read the executor's stderr; if it lacked memory, raise `spark.executor.memory`
    """


class ApplicationEndedError(FrazilError):
    """Spark's application ended under its driver.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: read the master's page and log; the driver begins a new application
    """


def application_ended(session: SparkSession) -> bool:
    """Whether the session's application is over, although its JVM lives: the cluster has removed it."""
    return is_stopped(session.sparkContext)


def cluster_problem(context: SparkContext, text: str) -> FrazilError | None:
    """What a failed job says of the cluster, if it is the cluster that failed it.

    Args:
        context: Of the job.
        text: What Spark says.
    """
    if is_local(str(context.master)):
        return None
    jsc: Any = context
    with contextlib.suppress(Exception):
        if jsc._jsc.sc().isStopped():
            return ApplicationEndedError(
                f"Spark's application {context.applicationId} has ended: {context.master} removed it, or lost it.",
                fix="look at the master's page and log; the stream begins a new application",
            )
    if (lost := _LOST.search(text)) is None:
        return None
    reason = f": {lost[2].strip()}" if lost[2] else ""
    return ExecutorsLostError(
        f"Spark lost executor {lost[1]} and what it was at{reason}",
        fix="look at the executor's stderr on its worker; if it was out of memory, raise spark.executor.memory",
    )


@dataclass(slots=True)
class ExecutorWait:
    """The wait of a batch for executors: since when it has none, and what follows from that.

    An application that has lost all its executors to a master that was started anew is not known there, and Spark
    would wait for ever: it is given up, and its driver begins another one. A cluster that is merely full gets no such
    answer: who never had an executor waits for the first.

    Attributes:
        had: Whether the application has had one.
        since: Of a clock, when it was first seen without any.
    """

    had: bool
    since: float | None = None

    def look(self, executors: int, now: float, answers: Callable[[], bool]) -> Literal["fine", "wait", "give up"]:
        """What to do about a batch.

        Args:
            executors: How many there are.
            now: Seconds.
            answers: Whether the master listens; asked last.
        """
        if executors:
            self.had, self.since = True, None
            return "fine"
        self.since = now if self.since is None else self.since
        waited = now - self.since
        if self.had and waited >= FORGOTTEN_SECONDS and answers():
            return "give up"
        return "wait" if waited >= AWAITED_SECONDS else "fine"


# Of this process, by id: a batch may begin after the last executor has gone.
_had: dict[str, bool] = {}


@contextlib.contextmanager
def executors_watched(context: SparkContext, say: Callable[[str | None], None]) -> Iterator[None]:
    """Within the block tasks run: see that there are executors for them, in a thread of its own.

    Args:
        context: Of the driver's Spark; one whose tasks run within the driver is not watched.
        say: Told what the tasks wait for; None once they wait no longer.
    """
    if is_local(str(context.master)):
        yield
        return
    ended = threading.Event()
    background_thread(_watch, "executor watch", context, say, ended).start()
    try:
        yield
    finally:
        ended.set()


def end_executor() -> None:
    """End the executor that this task runs in, as a machine that vanishes would; for a certificate.

    Only the first attempt of a job's first task does so, and nothing but an executor of Spark's is ended.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None or task.partitionId() or task.attemptNumber():
        return
    # The worker was forked by the daemon, which the executor has started.
    parent = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    if _EXECUTOR in Path(f"/proc/{parent}/cmdline").read_bytes():
        os.kill(parent, signal.SIGKILL)


def _watch(context: Any, say: Callable[[str | None], None], ended: threading.Event) -> None:
    application, master, said = str(context.applicationId), str(context.master), False
    wait = ExecutorWait(_had.get(application, False))
    while not ended.wait(_EVERY_SECONDS):
        try:
            # The driver is one of those that have memory.
            executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        except Exception:
            # A JVM that hangs, or is gone, is noticed elsewhere.
            continue
        verdict = wait.look(executors, time.monotonic(), lambda: _answers(master))
        _had[application] = wait.had
        if ended.is_set():
            break
        if verdict == "fine":
            if said:
                say(None)
            said = False
            continue
        if not said:
            where = "" if _answers(master) else ", and the master does not answer"
            log.warning("application %s has no executor of %s%s", application, master, where)
        said = True
        say(f"Spark has no executor of {master}{'' if _answers(master) else ', which does not answer'}")
        if verdict == "give up":
            log.warning("application %s is given up: %s answers, and gives it no executor", application, master)
            with contextlib.suppress(Exception):
                context._jsc.sc().stop()
            return
    if said:
        say(None)


def _answers(master: str) -> bool:
    """Whether a standalone master listens; of others nothing is known, and they do not forget applications."""
    return bool(standalone_addresses(master)) and not unanswered(master, _ASK_SECONDS)
