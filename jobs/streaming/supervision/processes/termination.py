"""Termination of a driver: awaited after a control request, then requested and forced by its launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.config.services.launcher_name import LauncherName
from jobs.streaming.supervision.documents.driver_session import end_leftovers_of
from jobs.streaming.supervision.documents.waiting import POLL_SECONDS, wait_until
from jobs.streaming.supervision.launchers.launcher import Launcher
from jobs.streaming.supervision.processes.actual import Driver

_DISTANT_POLL_SECONDS = 1.0
_LEFTOVERS_SECONDS = 5.0
_ASKED: dict[LauncherName, str] = {
    "local": "SIGTERM",
    "spark_submit": "the order of Spark's master",
    "kubernetes": "the removal of its pod",
}
_NOT_LISTENED = "did not listen and was killed"
CANCEL_SECONDS = 30.0
"""Longest time for a batch to end after a group's driver has cancelled it."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a driver's termination, and of the start of the next.

    Attributes:
        grace_seconds: Time for a driver to finish its batch after its end was requested.
        term_seconds: Time between SIGTERM and SIGKILL.
        first_heartbeat_seconds: Time for a new driver's first heartbeat. A driver of one stream on this machine is
            killed after that. Any other one is waited for a minute at most, and goes on.
        ready_seconds: Time from there until it runs; afterwards it goes on starting.
        lock_seconds: Time for another action on the same stream, or on its group, to write its documents; this includes
            submitting a driver.
    """

    grace_seconds: float = 60.0
    term_seconds: float = 10.0
    first_heartbeat_seconds: float = 180.0
    ready_seconds: float = 60.0
    lock_seconds: float = 120.0


def end_in_group(stream: str, driver: Driver, timeouts: Timeouts, find: Callable[[], Driver | None]) -> str | None:
    """Wait for the end of a stream in a group's driver, after its end was requested.

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

    # Its driver cancels a batch that exceeds the grace.
    wait_until(done, timeouts.grace_seconds + CANCEL_SECONDS)
    return "ended after its batch" if gone else None


def end_driver(
    stream: str, driver: Driver, timeouts: Timeouts, find: Callable[[], Driver | None], launcher: Launcher | None
) -> str:
    """Wait for a driver whose end was requested by the stream's control file, and make sure that it ends.

    A frozen driver does not react: it is killed without waiting, as it has no lease and can commit nothing.

    Args:
        find: Looks for the stream's living driver, as far as visible from here.
        launcher: Its launcher, which can end it; None if it is a process of another machine.

    Returns:
        How it ended, as the end of a sentence.

    Raises:
        FrazilError: It is out of reach and exceeds the grace, or it cannot be ended.
    """
    if launcher is None:
        return _await_distant(stream, driver, timeouts, find)
    how = "ended after its batch"
    gone = deaf = False

    def done() -> bool:
        nonlocal gone, deaf
        if driver.local:
            gone = not driver.lives()
            deaf = not gone and (now := find()) is not None and now.frozen
        else:
            now = find()
            gone = now is None or now.attempt > driver.attempt
            deaf = now is not None and not gone and now.frozen
        return gone or deaf

    poll = POLL_SECONDS if driver.local else _DISTANT_POLL_SECONDS
    wait_until(done, timeouts.grace_seconds, poll)
    process = driver.process
    if deaf:
        how = "was frozen and was killed"
        launcher.end(process, stream, 0.0)
    elif not gone:
        heard = launcher.end(process, stream, timeouts.term_seconds)
        how = f"ended on {_ASKED[launcher.name]}" if heard else _NOT_LISTENED
    if driver.local:
        end_leftovers_of(driver.pid, stream, driver.attempt, _LEFTOVERS_SECONDS)
    return how


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
