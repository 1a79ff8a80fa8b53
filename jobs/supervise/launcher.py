"""Launcher of drivers: starts one as a detached process, and waits until it drives.

The driver belongs to nobody: not to the terminal, not to the Dagster run that started it. It has a session of its own,
and its output goes to a file.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import jobs
from jobs.errors import FrazilError
from jobs.state.stream_folder import StreamFolder
from jobs.steps import step
from jobs.supervise.heartbeat import KEY as BEAT
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.supervise.launches import Launch, LaunchedProcess, write_launch, write_launched_process
from jobs.supervise.termination import DRIVER_VARIABLE, Timeouts, driver_id, kill_session, wait_until
from jobs.system.boot import boot_id
from jobs.system.private_files import private_folder, private_opener
from jobs.system.processes import is_alive, start_time
from jobs.system.signals import deferred_signals

COMMAND_VARIABLE = "FRAZIL_DRIVER_COMMAND"
OUTPUT = "logs/driver.out"
_TAIL_LINES = 15
_READY = frozenset({"running", "paused", "retrying"})

# Kept until they are reaped: drivers outlive this process as a rule, but not always.
_ours: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class LaunchedDriver:
    """A driver that was launched and is on its way up.

    Attributes:
        folder: The stream's.
        group: The folder of the group whose driver carries the stream; None if it has one of its own.
        local: Whether its process is one of this machine, and can be seen.
    """

    folder: StreamFolder
    stream: str
    attempt: int
    pid: int
    started: str
    group: Path | None = None
    local: bool = True

    @property
    def output(self) -> Path:
        """Where standard output and error of the driver that was launched go."""
        return (self.group or self.folder.root) / OUTPUT

    def lives(self) -> bool:
        """Whether its process runs, and has not ended this stream."""
        reap_drivers()
        if self.local and not is_alive(self.pid, self.started):
            return False
        beat = self.heartbeat() if self.group is not None else None
        return beat is None or beat.attempt != self.attempt or not beat.final

    def died_silently(self) -> bool:
        """Whether it is gone, and its last heartbeat does not say why."""
        beat = self.heartbeat()
        return not self.lives() and beat is not None and beat.attempt == self.attempt and not beat.final

    def heartbeat(self) -> Heartbeat | None:
        """The newest heartbeat of the driver that was launched; None before the first, or while nobody can tell."""
        beat = None
        with contextlib.suppress(*((OSError,) if self.folder.store.shared else ())):
            # A service that does not answer for a moment is no reason to kill it.
            beat = read_heartbeat(self.folder.store)
        return beat if beat is not None and beat.attempt >= self.attempt else None


def driver_command() -> tuple[str, ...]:
    """What starts a driver: FRAZIL_DRIVER_COMMAND (to wrap it, as with `numactl`), else this very Python."""
    wrapped = os.environ.get(COMMAND_VARIABLE)
    return tuple(shlex.split(wrapped)) if wrapped else (sys.executable, "-m", "jobs.stream.main")


@contextlib.contextmanager
def launched_driver(
    folder: StreamFolder, launch: Launch, spec_text: str, stream: str, arguments: Sequence[str], command: Sequence[str]
) -> Iterator[LaunchedDriver]:
    """Launch a driver; it is killed, with all it started, if the block is left by an error before its first heartbeat.

    That includes whatever ends a Dagster run, which is no `Exception`.

    Args:
        folder: The stream's, of which the caller holds the control lock.
        launch: Noted before the process starts.
        spec_text: The configuration that it is to run.
        arguments: Behind `command`.
    """
    write_launch(folder.store, launch, spec_text)
    step("after_launch_note")
    launching: LaunchedDriver | None = None
    try:
        # Nothing may interrupt between the start and the note of who was started.
        with deferred_signals():
            launching = _start(folder, launch, stream, command, arguments)
        yield launching
    except BaseException:
        with deferred_signals():
            beat = launching.heartbeat() if launching is not None else None
            if launching is not None and (beat is None or beat.final or not launching.lives()):
                # Of a driver that ended by itself this takes what it left behind.
                kill_session(launching.pid, launching.started, stream, launch.attempt)
            reap_drivers()
        raise


@contextlib.contextmanager
def given_to_group(
    folder: StreamFolder, launch: Launch, spec_text: str, stream: str, process: LaunchedProcess, group: Path
) -> Iterator[LaunchedDriver]:
    """Give a stream to the driver of its group, which sees the launch and takes the stream up.

    Args:
        folder: The stream's, of which the caller holds the control lock.
        launch: Noted; names the group.
        spec_text: The configuration that it is to run.
        process: Of the group's driver.
        group: The group's folder.
    """
    write_launch(folder.store, launch, spec_text)
    step("after_launch_note")
    note = msgspec.structs.replace(
        process, attempt=launch.attempt, generation=launch.generation, at=time.time(), group=launch.group
    )
    write_launched_process(folder.store, note)
    local = process.process_lives() is not None
    yield LaunchedDriver(folder, stream, launch.attempt, process.pid, process.started, group, local)


def reap_drivers() -> None:
    """Take notice of the drivers that this process started and that have ended."""
    _ours[:] = [process for process in _ours if process.poll() is None]


def await_ready(launching: LaunchedDriver, timeouts: Timeouts) -> Heartbeat:
    """Wait for a driver's first heartbeat, and then until it runs, or for a minute.

    Returns:
        Its heartbeat; `starting` if it takes longer, and is left to go on.

    Raises:
        FrazilError: It ended, or never gave a heartbeat and was killed.
    """
    wait_until(lambda: launching.heartbeat() is not None or not launching.lives(), timeouts.first_heartbeat_seconds)
    if launching.heartbeat() is None:
        if not launching.lives():
            raise FrazilError(
                f"The driver of stream {launching.stream} ended before its first heartbeat; the end of "
                f"{launching.output}:\n{last_output_lines(launching.output)}",
                fix=f"read {launching.output}",
            )
        if launching.group is not None:
            raise FrazilError(
                f"The driver of the group of stream {launching.stream} (process {launching.pid}) did not take it up "
                f"within {timeouts.first_heartbeat_seconds:.0f} s; it will when it can.",
                fix=f"read {launching.output}; frazil status {launching.stream}",
            )
        kill_session(launching.pid, launching.started, launching.stream, launching.attempt)
        raise FrazilError(
            f"The driver of stream {launching.stream} gave no heartbeat within "
            f"{timeouts.first_heartbeat_seconds:.0f} s, and was killed; the end of {launching.output}:\n"
            f"{last_output_lines(launching.output)}",
            fix=f"read {launching.output}",
        )

    def settled() -> bool:
        beat = launching.heartbeat()
        return not launching.lives() or (beat is not None and (beat.final or beat.state in _READY))

    wait_until(settled, timeouts.ready_seconds)
    beat = launching.heartbeat()
    if beat is None:
        raise FrazilError(f"{launching.folder.store.place(BEAT)} has gone.", fix=f"frazil restart {launching.stream}")
    if beat.final:
        # Its last word is said, and what it started is about to end.
        wait_until(lambda: not launching.lives(), timeouts.term_seconds)
    if beat.final or (beat.attempt == launching.attempt and not launching.lives()):
        raise final_error(launching.stream, beat, launching.output)
    return beat


def final_error(stream: str, beat: Heartbeat, output: Path) -> FrazilError:
    """Why a driver that was launched has ended, as an error."""
    log = beat.log or str(output)
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
        f"The driver of stream {stream} died without a word while it was {beat.state} (attempt {beat.attempt}); the "
        f"end of {output}:\n{last_output_lines(output)}",
        fix=f"read {log}",
    )


def last_output_lines(path: Path) -> str:
    """The last lines of the output of a driver that was launched, indented."""
    try:
        with path.open(errors="replace") as lines:
            return "".join(f"    {line.rstrip()}\n" for line in deque(lines, _TAIL_LINES)).rstrip("\n") or "    (empty)"
    except OSError as problem:
        return f"    ({problem.strerror})"


def _start(
    folder: StreamFolder, launch: Launch, stream: str, command: Sequence[str], arguments: Sequence[str]
) -> LaunchedDriver:
    output = folder.root / OUTPUT
    private_folder(output.parent)
    root = str(Path(jobs.__path__[0]).resolve().parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    reap_drivers()
    with open(output, "ab", opener=private_opener) as file:
        try:
            process = subprocess.Popen(
                [*command, *arguments],
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    DRIVER_VARIABLE: driver_id(stream, launch.attempt),
                    # Its keeper starts the next one as this one was started.
                    COMMAND_VARIABLE: shlex.join(command),
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=True,
            )
        except OSError as problem:
            raise FrazilError(
                f"The driver of stream {stream} could not be started: {command[0]}: {problem.strerror}.",
                fix=f"set {COMMAND_VARIABLE} right, or unset it" if COMMAND_VARIABLE in os.environ else None,
            ) from None
    _ours.append(process)
    started = str(start_time(process.pid))
    try:
        write_launched_process(folder.store, _note(launch, process.pid, started))
    except BaseException:
        kill_session(process.pid, started, stream, launch.attempt)
        raise
    return LaunchedDriver(folder, stream, launch.attempt, process.pid, started)


def _note(launch: Launch, pid: int, started: str) -> LaunchedProcess:
    return LaunchedProcess(
        launch.attempt, launch.generation, pid, started, boot_id(), socket.gethostname(), time.time()
    )
