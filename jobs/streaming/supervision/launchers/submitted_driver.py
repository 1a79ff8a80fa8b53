"""Submitted driver: the process that a Spark worker runs.

The command is `python -m jobs.streaming.supervision.launchers.submitted_driver MODULE …`.

The worker runs a JVM, which waits for this process. The driver is a third process, with a session of its own and its
own JVM as on any machine. If the worker's JVM ends, such as by the master's order, the driver is asked to end, and
killed if it does not. Nothing of it is left behind.
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
# Orphans of the driver become children of this process.
_ORPHANS = 1
_SET_PARENT_DEATH_SIGNAL = 1
# Variables of the JVM that started this process, and of the submitting client, whose address Spark passes on. The
# driver has its own JVM, by the deployment's settings.
_OF_THE_RUNNER = frozenset(
    {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET", "OLD_PYTHONHASHSEED", "SPARK_LOCAL_IP"}
)
_PACKED = ("pyspark.zip", "-src.zip")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a driver until it ends, or until its worker ends it; returns its exit status."""
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
    """Have Linux end the driver if this process is killed. Other systems cannot do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def driver_environment(environment: Mapping[str, str], handle: str) -> dict[str, str]:
    """Environment of the driver: the worker's and the submission's, without that of the JVM in between."""
    kept = {name: value for name, value in environment.items() if name not in _OF_THE_RUNNER}
    paths = [path for path in kept.pop("PYTHONPATH", "").split(os.pathsep) if path and not path.endswith(_PACKED)]
    path = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    return kept | path | ({HANDLE_VARIABLE: handle} if handle else {})


if __name__ == "__main__":
    sys.exit(main())
