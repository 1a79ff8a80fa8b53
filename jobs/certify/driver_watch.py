"""The watch over a driver of a certificate: a thread that sees it start and die, and may kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from jobs.state.store import StateStore
from jobs.state.stream_folder import StreamFolder
from jobs.supervise.launchers.local_process import OUTPUT
from jobs.supervise.launches import LaunchedProcess, read_launched_process
from jobs.system.processes import is_alive

_POLL_SECONDS = 0.01
# Each look at the note is a request there, which may fail for a moment.
_SHARED_POLL_SECONDS = 0.1
_JOIN_SECONDS = 5.0


class DriverWatch(threading.Thread):
    """Sees the next driver come and die; the time is right within some hundredths of a second.

    Args:
        folder: What the stream keeps outside its tables.
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
        """Watch until it is dead, or nobody wants to know any more."""
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
        """Whether these stand in one line of what drivers have printed since the watch began."""
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
            self.join(_JOIN_SECONDS)
