"""Executors of a cluster: waiting for them, errors for lost ones, and giving up a forgotten application."""

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
"""Seconds without an executor after which a batch reports that."""
FORGOTTEN_SECONDS = 20.0
"""Seconds without an executor, while the master answers, after which the application is given up."""
_EVERY_SECONDS = 2.0
_ASK_SECONDS = 2.0
# Part of the executor's class name on any cluster manager.
_EXECUTOR = b"ExecutorBackend"
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)]*\)(?: Reason: ([^\n]*))?")


class ExecutorsLostError(FrazilError):
    """Executors ended while they had tasks of a batch.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: read the executor's stderr; if it lacked memory, raise `spark.executor.memory`
    """


class ApplicationEndedError(FrazilError):
    """The cluster has ended the driver's Spark application.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: read the master's page and log; the driver begins a new application
    """


def application_ended(session: SparkSession) -> bool:
    """Whether the cluster has removed the session's application although its JVM lives."""
    return is_stopped(session.sparkContext)


def cluster_problem(context: SparkContext, text: str) -> FrazilError | None:
    """Return the error for a job that failed because of the cluster; None if it failed otherwise.

    Args:
        context: Context of the job.
        text: Spark's error text.
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
        f"Spark lost executor {lost[1]} and its tasks{reason}",
        fix="look at the executor's stderr on its worker; if it was out of memory, raise spark.executor.memory",
    )


@dataclass(slots=True)
class ExecutorWait:
    """Wait of a batch for executors.

    A restarted master does not know an application that had executors before, and Spark would wait for ever. So the
    application is given up, and its driver begins another one. If the cluster is only full, the application has had no
    executor yet, and goes on waiting.

    Attributes:
        had: Whether the application has had an executor.
        since: When it was first seen without executors, on a monotonic clock.
    """

    had: bool
    since: float | None = None

    def look(self, executors: int, now: float, answers: Callable[[], bool]) -> Literal["fine", "wait", "give up"]:
        """Return what to do about a batch.

        Args:
            executors: Number of executors.
            now: Time on the clock of `since`, in seconds.
            answers: Returns whether the master listens; called last.
        """
        if executors:
            self.had, self.since = True, None
            return "fine"
        self.since = now if self.since is None else self.since
        waited = now - self.since
        if self.had and waited >= FORGOTTEN_SECONDS and answers():
            return "give up"
        return "wait" if waited >= AWAITED_SECONDS else "fine"


# Whether each application, by id, has had an executor: a batch may begin after the last one has ended.
_had: dict[str, bool] = {}


@contextlib.contextmanager
def executors_watched(context: SparkContext, say: Callable[[str | None], None]) -> Iterator[None]:
    """Watch, in a thread, that tasks within the block have executors.

    Args:
        context: Context of the driver; nothing is watched if tasks run within the driver.
        say: Called with what the tasks wait for, and with None when they no longer wait.
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
    """Kill the executor that this task runs in, as if its machine vanished; for a certificate.

    Only the first attempt of a job's first task does so, and only a Spark executor is killed.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None or task.partitionId() or task.attemptNumber():
        return
    # The executor started a daemon, which forked this worker.
    parent = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    if _EXECUTOR in Path(f"/proc/{parent}/cmdline").read_bytes():
        os.kill(parent, signal.SIGKILL)


def _watch(context: Any, say: Callable[[str | None], None], ended: threading.Event) -> None:
    application, master, said = str(context.applicationId), str(context.master), False
    wait = ExecutorWait(_had.get(application, False))
    while not ended.wait(_EVERY_SECONDS):
        try:
            # The driver is one entry of this map.
            executors = int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
        except Exception:
            # Another watch notices a JVM that hangs or has ended.
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
    """Whether a standalone master listens; False for other cluster managers, which do not forget applications."""
    return bool(standalone_addresses(master)) and not unanswered(master, _ASK_SECONDS)
