"""Submitted driver: what a worker of Spark runs.

The command is `python -m jobs.streaming.supervision.launchers.submitted_driver MODULE …`.

The worker sees a JVM of its own, which waits for this process; the driver is a third one, with a session of its own and
a JVM as on any machine. When the JVM of the worker ends, as by the master's order, the driver is asked to end and
killed if it does not; and nothing of it is left behind when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.base.system.processes import start_time
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, kill_session
from jobs.streaming.supervision.launchers.driver_identity import HANDLE_VARIABLE, submission_of

TERM_SECONDS = 10.0
_POLL_SECONDS = 0.2
# Who has lost its parent is this one's child.
_ORPHANS = 1
_SET_PARENT_DEATH_SIGNAL = 1
# Of the JVM that has started this process, and of the client that submitted it, whose address Spark hands on. The
# driver has a JVM of its own, by the deployment's settings.
_OF_THE_RUNNER = frozenset(
    {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET", "OLD_PYTHONHASHSEED", "SPARK_LOCAL_IP"}
)
_PACKED = ("pyspark.zip", "-src.zip")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a driver until it ends, or its worker wants it to; returns its exit status."""
    module, *given = arguments if arguments is not None else sys.argv[1:]
    parent = os.getppid()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    handle = submission_of(Path.cwd())
    process = subprocess.Popen(
        [sys.executable, "-m", module, *given],
        env=driver_environment(os.environ, handle),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    started = str(start_time(process.pid))
    deadline: float | None = None
    while process.poll() is None:
        if deadline is None and (asked or os.getppid() != parent or parent == _ORPHANS):
            process.terminate()
            deadline = time.monotonic() + TERM_SECONDS
        elif deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    label, _, attempt = os.environ.get(DRIVER_VARIABLE, "").rpartition(":")
    kill_session(process.pid, started, label, int(attempt or 0))
    code = process.wait()
    return code if code >= 0 else 128 - code


def _end_with_parent() -> None:
    """Have Linux end the driver where this process is killed: nobody else would. Other systems have no such thing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def driver_environment(environment: Mapping[str, str], handle: str) -> dict[str, str]:
    """The driver's environment: the worker's and the submission's, without what is of the JVM between them."""
    kept = {name: value for name, value in environment.items() if name not in _OF_THE_RUNNER}
    paths = [path for path in kept.pop("PYTHONPATH", "").split(os.pathsep) if path and not path.endswith(_PACKED)]
    path = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    return kept | path | ({HANDLE_VARIABLE: handle} if handle else {})


if __name__ == "__main__":
    sys.exit(main())
