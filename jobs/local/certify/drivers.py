"""Drivers of a certificate: started with an armed failpoint, acted on, recorded, and ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.processes import is_alive, session_members, was_given
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.services.trigger import Restart
from jobs.local.certify.workspace import STREAM, Workspace
from jobs.streaming.supervision.control.stream_control import Action, StreamControl
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, driver_id
from jobs.streaming.supervision.documents.launches import LaunchedProcess, read_launched_process
from jobs.streaming.supervision.keeper.keeper_start import SWITCH, keeper_command, keeper_policy
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE, OUTPUT
from jobs.streaming.supervision.processes.launcher import driver_command

_POLL_SECONDS = 0.01
# Each look at the note is a request there, which may fail for a moment.
_SHARED_POLL_SECONDS = 0.1
_WATCH_JOIN_SECONDS = 5.0


class DriverWatch(threading.Thread):
    """Sees the next driver come and die; the time is right within some hundredths of a second.

    Args:
        folder: State folder of the stream.
        after: The attempt of the driver before.
        kill_after: Kill it so many seconds after it was started.

    Attributes:
        note: The process, once it was started.
        died_at: Seconds since 1970; None while it lives.
        killed: Whether it was this that killed it.
    """

    def __init__(self, folder: StreamFolder, after: int, kill_after: float | None = None) -> None:
        super().__init__(name="watch", daemon=True)
        self.note: LaunchedProcess | None = None
        self.died_at: float | None = None
        self.killed: bool = False
        self._store: StateStore = folder.store
        self._after: int = after
        self._kill_after: float | None = kill_after
        self._enough: threading.Event = threading.Event()
        self._output: Path = folder.root / OUTPUT
        self._said_before: int = self._output.stat().st_size if self._output.exists() else 0

    def run(self) -> None:
        """Watch until it is dead, or the watch is ended."""
        asking = _SHARED_POLL_SECONDS if self._store.shared else _POLL_SECONDS
        while not self._enough.wait(asking if self.note is None else _POLL_SECONDS):
            if self.note is None:
                note = self._noted()
                self.note = note if note is not None and note.attempt > self._after else None
                continue
            if not is_alive(self.note.pid, self.note.started):
                self.died_at = time.time()
                return
            if self._kill_after is not None and time.time() - self.note.at >= self._kill_after:
                self.kill()
                self._kill_after = None

    def _noted(self) -> LaunchedProcess | None:
        with contextlib.suppress(OSError):
            return read_launched_process(self._store)
        return None

    def kill(self) -> None:
        """Kill the driver; its JVM is left to what comes after, as it would be."""
        self.killed = True
        self.send(signal.SIGKILL)

    def send(self, which: signal.Signals) -> None:
        """Send the driver a signal, if it lives."""
        if self.note is not None and is_alive(self.note.pid, self.note.started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.note.pid, which)

    def said(self, *texts: str) -> bool:
        """Whether these texts are in one line of the drivers' output since the watch began."""
        wanted = [text.encode() for text in texts]
        with contextlib.suppress(OSError), self._output.open("rb") as output:
            if self._output.stat().st_size >= self._said_before:
                output.seek(self._said_before)
            return any(all(each in line for each in wanted) for line in output)
        return False

    def end(self) -> None:
        """Watch no longer."""
        self._enough.set()
        if self.is_alive():
            self.join(_WATCH_JOIN_SECONDS)


_JOIN_SECONDS = 60.0
_END_SECONDS = 60.0
# Value in the environment of an action and all that it starts.
_MARK = "FRAZIL_CERTIFICATE"
BY = "frazil certify"


def armed_command(arming: str) -> tuple[str, ...]:
    """Command that starts a driver with these failpoints armed, and no other process with them.

    Raises:
        FrazilError: The system has no `env`.
    """
    env = shutil.which("env")
    if env is None:
        raise FrazilError("There is no `env` on the PATH, which sets a driver's environment.")
    # The certificate decides what follows a death.
    return (env, f"FRAZIL_STEPS={arming}", f"{SWITCH}=off", *driver_command())


@dataclass(frozen=True, slots=True)
class StartedKeeper:
    """A watchdog that `Drivers` started as a process of the certificate.

    Attributes:
        log: File with its output.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def died_at(self, step: str) -> bool:
        """Whether it was killed at a step."""
        killed = self.process.poll() == -signal.SIGKILL
        return killed and f"step {step}: SIGKILL" in self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(_JOIN_SECONDS)


class Drivers:
    """The drivers of a certificate, one after another, started as an operator starts them.

    Args:
        workspace: Workspace of the drivers.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.folder: StreamFolder = stream_folder(workspace.settings, STREAM)
        self.notes: dict[int, LaunchedProcess] = {}
        self._workspace: Workspace = workspace
        self._watch: DriverWatch | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def attempt(self) -> int:
        """The attempt of the newest driver."""
        note = read_launched_process(self.folder.store)
        return note.attempt if note is not None else 0

    def watch(self, kill_after: float | None = None) -> DriverWatch:
        """Watch the driver behind the one that was watched last; an action that died may have started it already."""
        before = 0
        if self._watch is not None:
            self._watch.end()
            before = self._watch.note.attempt if self._watch.note is not None else 0
        self._watch = DriverWatch(self.folder, before, kill_after)
        self._watch.start()
        return self._watch

    def control(self, arming: str = "") -> StreamControl:
        """The actions on the stream; a driver that they start has these steps armed."""
        workspace = self._workspace
        command = armed_command(arming)
        return StreamControl(workspace.folder, workspace.settings_file, STREAM, command=command)

    def give(self, action: Action, arming: str = "") -> str | None:
        """Give an action; returns why it could not be carried out, as it cannot if the driver dies meanwhile."""
        try:
            self.control(arming).perform(action, "a certificate", BY)
        except FrazilError as problem:
            return problem.message
        finally:
            self.remember()
        return None

    def remember(self) -> None:
        """Record the newest driver, whose processes have to be dead in the end."""
        if (note := read_launched_process(self.folder.store)) is not None:
            self.notes[note.attempt] = note

    def run_action(self, name: str, arguments: Sequence[str], *, steps: str = "", seconds: float) -> tuple[int, str]:
        """Carry out an action of `jobs.local.certify.action` in a process of its own.

        Args:
            name: Name of the action.
            arguments: Further ones.
            steps: Armed in that process.
            seconds: Time after which it is killed.

        Returns:
            Its exit status, as in `subprocess`, and its output.
        """
        log = self._workspace.logs / f"{name}-{len(self._children)}.log"
        command = [
            sys.executable,
            "-m",
            "jobs.local.certify.action",
            name,
            "--folder",
            str(self._workspace.folder),
            *arguments,
        ]
        child = self._start(command, log, {"FRAZIL_STEPS": steps})
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        if child.poll() is None:
            child.kill()
            child.wait(_JOIN_SECONDS)
        self.remember()
        return child.returncode, log.read_text(errors="replace")

    def start_keeper(self, kept: LaunchedProcess, steps: str, arming: str) -> StartedKeeper:
        """Start a watchdog of a driver, as a process of the certificate, so that it dies where it has to.

        Args:
            kept: The driver's process.
            steps: Failpoints armed in the watchdog.
            arming: Failpoints of the driver that it starts.
        """
        workspace = self._workspace
        log = workspace.logs / f"keeper-{len(self._children)}.log"
        home, settings = str(workspace.folder), str(workspace.settings_file)
        arguments = ["--home", home, "--settings", settings, "--stream", STREAM]
        policy = keeper_policy(Restart())
        command = keeper_command(
            self.folder, STREAM, kept.attempt, kept.pid, arguments, policy, self._workspace.settings
        )
        driver = {COMMAND_VARIABLE: shlex.join(armed_command(arming))}
        return StartedKeeper(self._start(command, log, {"FRAZIL_STEPS": steps, **driver}), log)

    def _start(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": path, _MARK: self._workspace.name, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def orphans(self, *, but: int | None = None) -> list[int]:
        """Living processes of drivers that should be dead: drivers, their JVMs and the JVMs' workers.

        Args:
            but: The attempt of the driver that may live.
        """
        return [
            pid
            for attempt, note in self.notes.items()
            if attempt != but
            for pid in session_members(note.pid)
            if was_given(pid, DRIVER_VARIABLE, driver_id(STREAM, attempt))
        ]

    def end_all(self) -> None:
        """End whatever was started here, now: drivers, actions, and what they have started."""
        if self._watch is not None:
            self._watch.end()
        self.remember()
        deadline = time.monotonic() + _END_SECONDS
        while (left := [*self.orphans(), *self._acting()]) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _acting(self) -> list[int]:
        """The living processes of actions; a driver that one has started has a session of its own, and a note."""
        for child in self._children:
            child.poll()
        return [
            pid
            for child in self._children
            for pid in session_members(child.pid)
            if was_given(pid, _MARK, self._workspace.name)
        ]
