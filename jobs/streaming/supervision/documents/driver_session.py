"""Session of a driver on this machine: kills the driver with all processes that it started.

Signals go only to a process with the recorded start time, so never to another process with the same pid.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from jobs.base.errors import FrazilError
from jobs.base.system.processes import (
    is_alive,
    session_members,
    start_time,
    was_given,
)
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.documents.waiting import POLL_SECONDS, wait_until

DRIVER_VARIABLE = "FRAZIL_DRIVER"
# The system needs time to free the memory of a large process.
_KILL_SECONDS = 60.0


def driver_id(stream: str, attempt: int) -> str:
    """Value of FRAZIL_DRIVER in the environment of a driver and of all that it starts."""
    return f"{stream}:{attempt}"


def kill_session(pid: int, started: str | None, stream: str, attempt: int) -> None:
    """Kill a driver and all that it started with SIGKILL.

    Raises:
        FrazilError: A process does not end.
    """
    carried = driver_id(stream, attempt)
    _kill(lambda: _session_of(pid, carried) if not is_alive(pid, started) else [pid, *_session_led_by(pid)], stream)


def end_leftovers(process: LaunchedProcess | None, stream: str) -> None:
    """End what a dead driver has left: its JVM, and the JVM's Python workers."""
    if process is not None and process.process_lives() is False:
        end_leftovers_of(process.pid, stream, process.attempt, 0.0)


def _session_led_by(pid: int) -> list[int]:
    with contextlib.suppress(ProcessLookupError):
        # A driver that was started by hand is in a terminal's session.
        return session_members(pid) if os.getsid(pid) == pid else []
    return []


def _session_of(leader: int, carried: str) -> list[int]:
    """Remaining processes in the session of a dead leader.

    The session's number may have been reused, so the processes' environment decides.
    """
    if start_time(leader) is not None:
        return []
    return [pid for pid in session_members(leader) if was_given(pid, DRIVER_VARIABLE, carried)]


def end_leftovers_of(session: int, stream: str, attempt: int, grace_seconds: float) -> None:
    """End what is left of a dead driver's session."""
    carried = driver_id(stream, attempt)
    if not wait_until(lambda: not _session_of(session, carried), grace_seconds):
        _kill(lambda: _session_of(session, carried), stream)


def _kill(targets: Callable[[], list[int]], stream: str) -> None:
    known = {pid: start_time(pid) for pid in targets()}
    deadline = time.monotonic() + _KILL_SECONDS
    while living := {*targets(), *(pid for pid, started in known.items() if is_alive(pid, started))}:
        if time.monotonic() >= deadline:
            numbers = ", ".join(map(str, sorted(living)))
            raise FrazilError(
                f"stream {stream}: process {numbers} does not end after SIGKILL: the kernel keeps it.",
                fix=f"ps -o pid,stat,wchan:30,cmd -p {numbers}",
            )
        known |= {pid: start_time(pid) for pid in living if pid not in known}
        send(list(living), signal.SIGKILL, stream)
        time.sleep(POLL_SECONDS)


def send(pids: list[int], which: signal.Signals, stream: str) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        try:
            os.kill(pid, which)
        except ProcessLookupError:
            continue
        except PermissionError:
            raise FrazilError(
                f"stream {stream} is driven by process {pid}, which belongs to another user.",
                fix=f"run this again as that user: ps -o user= -p {pid}",
            ) from None
