"""Termination of a driver: awaited after a control request, then by SIGTERM and SIGKILL, with all that it started.

Signals go only to a process whose start time is the one on record, so never to a stranger with the same pid.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.errors import FrazilError
from jobs.supervise.actual import Driver
from jobs.supervise.launches import LaunchedProcess
from jobs.system.processes import is_alive, session_members, start_time, was_given

DRIVER_VARIABLE = "FRAZIL_DRIVER"
_POLL_SECONDS = 0.05
_DISTANT_POLL_SECONDS = 1.0
_LEFTOVERS_SECONDS = 5.0
_KILL_SECONDS = 10.0
CANCEL_SECONDS = 30.0
"""How long a batch that a group's driver has cancelled may take to end."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for a driver's termination, and for the start of the next.

    Attributes:
        grace_seconds: For a driver to finish its batch after it was asked to end.
        term_seconds: After SIGTERM, before SIGKILL.
        first_heartbeat_seconds: For a new driver's first heartbeat.
        ready_seconds: From there until it runs; after that it is left to go on starting.
        lock_seconds: For another action on the same stream to have written what it has to write.
    """

    grace_seconds: float = 60.0
    term_seconds: float = 10.0
    first_heartbeat_seconds: float = 60.0
    ready_seconds: float = 60.0
    lock_seconds: float = 10.0


def driver_id(stream: str, attempt: int) -> str:
    """What a driver and all that it starts carry in their environment as FRAZIL_DRIVER."""
    return f"{stream}:{attempt}"


def wait_until(condition: Callable[[], bool], seconds: float, poll_seconds: float = _POLL_SECONDS) -> bool:
    """Wait until `condition` holds; False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


def end_in_group(stream: str, driver: Driver, timeouts: Timeouts, find: Callable[[], Driver | None]) -> str | None:
    """Wait for the end of a stream that a group's driver carries, and that was asked to end.

    Returns:
        How it ended, as the end of a sentence; None if it did not, or if it is frozen.
    """
    gone = frozen = False

    def done() -> bool:
        nonlocal gone, frozen
        now = find()
        gone = now is None or now.attempt > driver.attempt
        frozen = now is not None and now.frozen
        return gone or frozen

    # Its driver cancels a batch that has not ended within the grace.
    wait_until(done, timeouts.grace_seconds + CANCEL_SECONDS)
    return "ended after its batch" if gone else None


def end_driver(stream: str, driver: Driver, timeouts: Timeouts, find: Callable[[], Driver | None]) -> str:
    """Wait for a driver that was asked to end by the stream's control file, and see to it that it does.

    One that is frozen cannot hear: it is killed without waiting, for it has no lease and can commit nothing.

    Args:
        find: Looks for the stream's live driver, as far as it can be seen from here.

    Returns:
        How it ended, as the end of a sentence.

    Raises:
        FrazilError: It runs on another host and has not ended within the grace; or it cannot be ended.
    """
    if not driver.local:
        return _await_distant(stream, driver, timeouts, find)
    how = "ended after its batch"
    deaf = False

    def done() -> bool:
        nonlocal deaf
        deaf = driver.lives() and (now := find()) is not None and now.frozen
        return deaf or not driver.lives()

    if not wait_until(done, timeouts.grace_seconds) and not deaf:
        how = "ended on SIGTERM"
        if driver.lives():
            _send([driver.pid], signal.SIGTERM, stream)
        if not wait_until(lambda: not driver.lives(), timeouts.term_seconds):
            how = "did not listen and was killed"
    if deaf:
        how = "was frozen and was killed"
    if driver.lives():
        kill_session(driver.pid, driver.started, stream, driver.attempt)
    else:
        _end_leftovers(driver.pid, stream, driver.attempt, _LEFTOVERS_SECONDS)
    return how


def kill_session(pid: int, started: str | None, stream: str, attempt: int) -> None:
    """End a driver and all that it started with SIGKILL, now.

    Raises:
        FrazilError: Something of it does not die.
    """
    carried = driver_id(stream, attempt)
    _kill(lambda: _session_of(pid, carried) if not is_alive(pid, started) else [pid, *_session_led_by(pid)], stream)


def end_leftovers(process: LaunchedProcess | None, stream: str) -> None:
    """End what a driver that is gone has left behind: its JVM, and that one's Python workers."""
    if process is not None and process.process_lives() is False:
        _end_leftovers(process.pid, stream, process.attempt, 0.0)


def _await_distant(stream: str, driver: Driver, timeouts: Timeouts, find: Callable[[], Driver | None]) -> str:
    def ended() -> bool:
        now = find()
        return now is None or now.attempt > driver.attempt

    if not wait_until(ended, timeouts.grace_seconds, _DISTANT_POLL_SECONDS):
        raise FrazilError(
            f"stream {stream} is driven by {driver.name}, which this host cannot reach: it was asked to end, and did "
            f"not within {timeouts.grace_seconds:.0f} s.",
            fix=f"on {driver.host}: kill {driver.pid}",
        )
    return f"ended on {driver.host}"


def _session_led_by(pid: int) -> list[int]:
    with contextlib.suppress(ProcessLookupError):
        # A driver that was started by hand is in the session of a terminal.
        return session_members(pid) if os.getsid(pid) == pid else []
    return []


def _session_of(leader: int, carried: str) -> list[int]:
    """What is left of the session of a leader that is gone.

    The number of such a session may long belong to another one: what the processes carry tells.
    """
    if start_time(leader) is not None:
        return []
    return [pid for pid in session_members(leader) if was_given(pid, DRIVER_VARIABLE, carried)]


def _end_leftovers(session: int, stream: str, attempt: int, grace_seconds: float) -> None:
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
                f"stream {stream}: process {numbers} does not die of SIGKILL; the system holds it.",
                fix=f"ps -o pid,stat,wchan:30,cmd -p {numbers}",
            )
        known |= {pid: start_time(pid) for pid in living if pid not in known}
        _send(list(living), signal.SIGKILL, stream)
        time.sleep(_POLL_SECONDS)


def _send(pids: list[int], which: signal.Signals, stream: str) -> None:
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
