"""Launch of a driver: recorded, started by a launcher, recorded with its handle, and awaited until it runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.signals import deferred_signals
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.supervision.documents.driver_session import kill_session
from jobs.streaming.supervision.documents.heartbeat import KEY as BEAT
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    process_name,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.documents.waiting import POLL_SECONDS, wait_until
from jobs.streaming.supervision.launchers.launcher import (
    DriverOrder,
    Launcher,
    Look,
    NotLaunchedError,
)
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE, OUTPUT, reap_drivers
from jobs.streaming.supervision.processes.termination import Timeouts

_TAIL_LINES = 15
_READY = frozenset({"running", "paused", "retrying"})
_REMOTE_POLL_SECONDS = 1.0
# Time that an action waits for the first heartbeat of a driver that is not killed without one.
_UNHEARD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LaunchedDriver:
    """A launched driver that is starting.

    Attributes:
        folder: Folder of the stream.
        process: The started process, or the existing one that is awaited.
        launcher: Its launcher, which can look at it; None if it is a process of another machine.
        group: Folder of the group whose driver runs the stream; None for a driver of its own.
    """

    folder: StreamFolder
    stream: str
    attempt: int
    process: LaunchedProcess
    launcher: Launcher | None
    group: Path | None = None

    @property
    def output(self) -> Path:
        """File with standard output and error of the launched driver, if it is a process of this machine."""
        return (self.group or self.folder.root) / OUTPUT

    @property
    def where(self) -> str:
        """Where a person reads the driver's output."""
        return f"what {process_name(self.process)} printed" if self.process.remote else str(self.output)

    @property
    def unheard(self) -> str:
        """State of a driver without a heartbeat, for a sentence about the stream."""
        reason = self.look().reason
        who = f"{process_name(self.process)}{f': {reason}' if reason else ''}"
        if self.group is not None:
            return f"is given to the driver of its group, which begins it when it can: {who}"
        return f"is started, and has not reported yet: {who}"

    def look(self) -> Look:
        """Its launcher's present answer about it."""
        return self.launcher.look(self.process) if self.launcher is not None else Look("unknown")

    def lives(self) -> bool:
        """Whether it seems to run, and has not ended this stream."""
        if self.look().life == "ended":
            return False
        beat = self.heartbeat() if self.group is not None or self.process.remote else None
        return beat is None or beat.attempt != self.attempt or not beat.final

    def died_silently(self) -> bool:
        """Whether it is dead, and its last heartbeat does not explain that."""
        beat = self.heartbeat()
        return not self.lives() and beat is not None and beat.attempt == self.attempt and not beat.final

    def heartbeat(self) -> Heartbeat | None:
        """Newest heartbeat of the launched driver; None before the first, or while it cannot be read."""
        beat = None
        with contextlib.suppress(*((OSError,) if self.folder.store.shared else ())):
            # A service that does not answer for a moment is no reason to kill it.
            beat = read_heartbeat(self.folder.store)
        return beat if beat is not None and beat.attempt >= self.attempt else None


def driver_command() -> tuple[str, ...]:
    """Command that starts a driver: FRAZIL_DRIVER_COMMAND (to wrap it, such as with `numactl`), or this Python."""
    wrapped = os.environ.get(COMMAND_VARIABLE)
    return tuple(shlex.split(wrapped)) if wrapped else (sys.executable, "-m", "jobs.streaming.driver.main")


@contextlib.contextmanager
def launched_driver(
    folder: StreamFolder, order: DriverOrder, spec_text: str, launcher: Launcher
) -> Iterator[LaunchedDriver]:
    """Launch a driver.

    If the block is left by an error before the first heartbeat, a process of this machine is killed, with all it
    started. That includes whatever ends a Dagster run, which is no `Exception`. A driver elsewhere is left alone: it is
    recorded, so supervisors know it.

    Args:
        folder: Folder of the stream, whose control lock the caller holds.
        order: Driver to start; its launch is recorded before.
        spec_text: Configuration for the driver.
        launcher: Launcher that starts it.
    """
    label, attempt = order.label, order.launch.attempt
    launch = msgspec.structs.replace(order.launch, launcher=launcher.name, handle=launcher.handle(label, attempt))
    order = replace(order, launch=launch)
    write_launch(folder.store, launch, spec_text)
    step("after_launch_note")
    launching: LaunchedDriver | None = None
    try:
        # Nothing may interrupt between the start and the record of the process.
        with deferred_signals():
            launching = LaunchedDriver(folder, label, attempt, _started(folder, order, launcher), launcher)
        yield launching
    except BaseException:
        with deferred_signals():
            beat = launching.heartbeat() if launching is not None else None
            mine = launching is not None and not launching.process.remote
            if launching is not None and mine and (beat is None or beat.final or not launching.lives()):
                # If the driver ended by itself, this ends what it left behind.
                kill_session(launching.process.pid, launching.process.started, label, attempt)
            reap_drivers()
        raise


def _started(folder: StreamFolder, order: DriverOrder, launcher: Launcher) -> LaunchedProcess:
    try:
        process = launcher.start(order)
    except NotLaunchedError as problem:
        launch = order.launch
        who = (launch.attempt, launch.generation, 0, "", "", "", time.time())
        refused = LaunchedProcess(*who, launcher=launcher.name, problem=problem.message)
        write_launched_process(folder.store, refused)
        raise
    try:
        write_launched_process(folder.store, process)
    except BaseException:
        launcher.end(process, order.label, 0.0)
        raise
    return process


@contextlib.contextmanager
def given_to_group(
    folder: StreamFolder,
    launch: Launch,
    spec_text: str,
    stream: str,
    process: LaunchedProcess,
    group: Path,
    launcher: Launcher | None,
) -> Iterator[LaunchedDriver]:
    """Give a stream to its group's driver, which sees the launch and starts the stream.

    Args:
        folder: Folder of the stream, whose control lock the caller holds.
        launch: Recorded launch, which names the group.
        spec_text: Configuration for the stream.
        process: Process of the group's driver.
        group: Folder of the group.
        launcher: Launcher of that driver; None if it is a process of another machine.
    """
    launch = msgspec.structs.replace(launch, launcher=process.launcher, handle=process.handle)
    write_launch(folder.store, launch, spec_text)
    step("after_launch_note")
    note = msgspec.structs.replace(
        process, attempt=launch.attempt, generation=launch.generation, at=time.time(), group=launch.group
    )
    write_launched_process(folder.store, note)
    yield LaunchedDriver(folder, stream, launch.attempt, note, launcher, group)


def await_ready(launching: LaunchedDriver, timeouts: Timeouts) -> Heartbeat | None:
    """Wait for a driver's first heartbeat, and then until it runs, within the timeouts.

    Returns:
        Its heartbeat; in state `starting` if it takes longer, and it goes on. None if it lives without a heartbeat and
        that is no fault: a cluster may have no place for it yet, or the driver of a group may be starting, or starts
        another stream first.

    Raises:
        FrazilError: It ended, or wrote no heartbeat and was killed.
    """
    poll = _REMOTE_POLL_SECONDS if launching.process.remote else POLL_SECONDS

    def heard() -> bool:
        return launching.heartbeat() is not None or not launching.lives()

    is_left = launching.group is not None or launching.process.remote
    longest = timeouts.first_heartbeat_seconds
    wait_until(heard, min(longest, _UNHEARD_SECONDS) if is_left else longest, poll)
    if launching.heartbeat() is None:
        if not launching.lives():
            raise FrazilError(
                f"The driver of stream {launching.stream} ended before its first heartbeat{_last_words(launching)}",
                fix=f"read {launching.where}",
            )
        if is_left:
            return None
        kill_session(launching.process.pid, launching.process.started, launching.stream, launching.attempt)
        raise FrazilError(
            f"The driver of stream {launching.stream} gave no heartbeat within "
            f"{timeouts.first_heartbeat_seconds:.0f} s, and was killed{_last_words(launching)}",
            fix=f"read {launching.output}",
        )

    def settled() -> bool:
        beat = launching.heartbeat()
        return not launching.lives() or (beat is not None and (beat.final or beat.state in _READY))

    wait_until(settled, timeouts.ready_seconds, poll)
    beat = launching.heartbeat()
    if beat is None:
        raise FrazilError(
            f"{launching.folder.store.place(BEAT)} does not exist any more.", fix=f"frazil restart {launching.stream}"
        )
    if beat.final:
        # Its last heartbeat is written, and the processes that it started are about to end.
        wait_until(lambda: not launching.lives(), timeouts.term_seconds, poll)
    if beat.final or (beat.attempt == launching.attempt and not launching.lives()):
        raise final_error(launching, beat)
    return beat


def final_error(launching: LaunchedDriver, beat: Heartbeat) -> FrazilError:
    """Error with the reason why a launched driver has ended."""
    log, stream = beat.log or launching.where, launching.stream
    if beat.error is not None:
        return FrazilError(beat.error.message, fix=beat.error.fix or f"read {log}")
    if beat.final:
        ending = {
            "stopped": "was asked to end",
            "terminated": "was ended by SIGTERM",
            "finished": "has read everything and ended",
            "fenced": "gave way to another driver",
        }.get(beat.state, "failed")
        return FrazilError(f"The driver of stream {stream} {ending} (attempt {beat.attempt}).", fix=f"read {log}")
    return FrazilError(
        f"The driver of stream {stream} died without a report while it was {beat.state} (attempt "
        f"{beat.attempt}){_last_words(launching)}",
        fix=f"read {log}",
    )


def _last_words(launching: LaunchedDriver) -> str:
    """Known details of an ended driver: the end of its output, or its launcher's answer."""
    if launching.process.remote:
        reason = launching.look().reason
        return f": {process_name(launching.process)}{f': {reason}' if reason else ''}."
    return f"; the end of {launching.output}:\n{last_output_lines(launching.output)}"


def last_output_lines(path: Path) -> str:
    """Last lines of a launched driver's output, indented."""
    try:
        with path.open(errors="replace") as lines:
            return "".join(f"    {line.rstrip()}\n" for line in deque(lines, _TAIL_LINES)).rstrip("\n") or "    (empty)"
    except OSError as problem:
        return f"    ({problem.strerror})"
