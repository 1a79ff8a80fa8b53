"""A deployment whose drivers only beat, and everything that a test started in it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from jobs.base.system.processes import is_alive, session_members
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.control_request import ControlRequest, read_control
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.processes.termination import Timeouts
from tests.unit.orchestration.deployments import STREAM

STANDIN = (sys.executable, "-m", "tests.helpers.standin_driver")
# Of drivers that start in a second: what they take long for is the machine's.
QUICK = Timeouts(grace_seconds=120, term_seconds=10, first_heartbeat_seconds=120, ready_seconds=120, lock_seconds=60)
IMPATIENT = Timeouts(
    grace_seconds=0.5, term_seconds=0.5, first_heartbeat_seconds=1.5, ready_seconds=1, lock_seconds=0.3
)
WHY = ("a test", "tester@here")


class World:
    """A deployment in a folder, with one stream, `payments`, at first."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.write("payments")

    def write(self, stream: str, further: str = "") -> Path:
        """Write a stream's file."""
        path = self.home / "streams" / f"{stream}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STREAM.format(stream=stream, topic=f"{stream}.v1") + further)
        return path

    def control(self, stream: str = "payments", timeouts: Timeouts = QUICK) -> StreamControl:
        """The actions on a stream."""
        return StreamControl(self.home, None, stream, timeouts=timeouts, command=STANDIN)

    def folder(self, stream: str = "payments") -> Path:
        """A stream's state folder."""
        return self.home / ".frazil" / "state" / "streams" / stream

    def beat(self, stream: str = "payments") -> Heartbeat:
        """The newest heartbeat."""
        beat = read_heartbeat(LocalStore(self.folder(stream)))
        assert beat is not None
        return beat

    def request(self, stream: str = "payments") -> ControlRequest:
        """The operator's newest word."""
        return read_control(LocalStore(self.folder(stream)))

    def living(self, stream: str = "payments") -> list[int]:
        """The processes of the newest launch."""
        note = read_launched_process(LocalStore(self.folder(stream)))
        return session_members(note.pid) if note is not None else []

    def end(self) -> None:
        """End every driver of the deployment, with all that it started."""
        for folder in (self.home / ".frazil" / "state" / "streams").glob("*"):
            note, beat = read_launched_process(LocalStore(folder)), read_heartbeat(LocalStore(folder))
            for process in filter(None, (note, beat)):
                if process is note or is_alive(process.pid, process.started):
                    for pid in session_members(process.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
