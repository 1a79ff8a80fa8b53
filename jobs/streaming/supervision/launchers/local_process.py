"""Launcher of drivers as detached processes on this machine, each in a session of its own.

Such a driver depends on no terminal and no Dagster run. Its output goes to a file.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import jobs
from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_id
from jobs.base.system.private_files import private_folder, private_opener
from jobs.base.system.processes import is_alive, start_time
from jobs.config.services.launcher_name import LOCAL, LauncherName
from jobs.streaming.supervision.documents.driver_session import (
    DRIVER_VARIABLE,
    driver_id,
    kill_session,
    send,
)
from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.documents.waiting import wait_until
from jobs.streaming.supervision.launchers.launcher import DriverOrder, Look

COMMAND_VARIABLE = "FRAZIL_DRIVER_COMMAND"
OUTPUT = "logs/driver.out"

# Kept until they are reaped: drivers usually outlive this process, but not always.
_ours: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """Starts drivers on this machine, and ends those that it can see."""

    @property
    def name(self) -> LauncherName:
        """Name in the settings."""
        return LOCAL

    def check(self) -> str:
        """No check is needed."""
        return "drivers are processes of this machine"

    def handle(self, label: str, attempt: int) -> str:
        """Empty: pid and start time identify a process."""
        return ""

    def start(self, order: DriverOrder) -> LaunchedProcess:
        """Start a driver; see `Launcher`."""
        launch = order.launch
        output = order.folder / OUTPUT
        private_folder(output.parent)
        root = str(Path(jobs.__path__[0]).resolve().parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        reap_drivers()
        with open(output, "ab", opener=private_opener) as file:
            try:
                process = subprocess.Popen(
                    [*order.command, *order.arguments],
                    env={
                        **os.environ,
                        "PYTHONPATH": path,
                        DRIVER_VARIABLE: driver_id(order.label, launch.attempt),
                        # Its watchdog starts the next driver with the same command.
                        COMMAND_VARIABLE: shlex.join(order.command),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    close_fds=True,
                )
            except OSError as problem:
                raise FrazilError(
                    f"The driver of stream {order.label} could not be started: {order.command[0]}: {problem.strerror}.",
                    fix=f"set {COMMAND_VARIABLE} right, or unset it" if COMMAND_VARIABLE in os.environ else None,
                ) from None
        _ours.append(process)
        started = str(start_time(process.pid))
        who = (launch.attempt, launch.generation, process.pid, started, boot_id(), socket.gethostname(), time.time())
        return LaunchedProcess(*who)

    def look(self, process: LaunchedProcess) -> Look:
        """Whether a driver's process runs; see `Launcher`."""
        reap_drivers()
        lives = process.process_lives()
        return Look("unknown" if lives is None else "alive" if lives else "ended", place=process.host)

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        """End a driver with SIGTERM, then SIGKILL for all that it started; see `Launcher`."""

        def gone() -> bool:
            reap_drivers()
            return not is_alive(process.pid, process.started)

        heard = gone()
        if not heard and seconds > 0:
            send([process.pid], signal.SIGTERM, label)
            heard = wait_until(gone, seconds)
        if not heard:
            kill_session(process.pid, process.started, label, process.attempt)
            reap_drivers()
        return heard


def reap_drivers() -> None:
    """Reap ended drivers that this process started."""
    _ours[:] = [process for process in _ours if process.poll() is None]
