"""The process of a stream's newest launch: `process.json` of its state, written as soon as it was started."""

from __future__ import annotations

import contextlib
import socket

import msgspec

from jobs.state.store import StateStore
from jobs.system.boot import boot_id
from jobs.system.processes import is_alive

KEY = "process.json"


class ProcessNote(msgspec.Struct, frozen=True):
    """The process of the newest launch.

    Attributes:
        at: Seconds since 1970.
    """

    attempt: int
    generation: str
    pid: int
    started: str
    boot: str
    host: str
    at: float

    def process_lives(self) -> bool | None:
        """Whether it runs; None if that cannot be told from this host, or from this container."""
        if (self.boot, self.host) != (boot_id(), socket.gethostname()):
            return None
        return is_alive(self.pid, self.started)


def write_process_note(store: StateStore, note: ProcessNote) -> None:
    """Note the process of a launch durably."""
    store.put(KEY, msgspec.json.encode(note))


def read_process_note(store: StateStore) -> ProcessNote | None:
    """The process of the newest launch; None if there never was one."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(store.get(KEY) or b"", type=ProcessNote)
    return None
