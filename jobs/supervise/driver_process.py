"""Which process drives a stream now: as the launcher noted it, as it says itself, or as the lease says.

A driver beats as soon as it can, but not at once. Until then only the launcher's note tells which process it is, so
that a launcher that is killed while it waits leaves no driver that nobody knows of.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jobs.state.files import write_durably
from jobs.state.lease import Lease, LeaseRecord
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.system.boot import boot_id
from jobs.system.processes import is_alive

FILE = "process.json"
# So long after its last beat a driver counts as alive only if its lease says so.
SILENT_SECONDS = 30.0


class ProcessNote(msgspec.Struct, frozen=True):
    """The process of the newest launch, noted as soon as it was started.

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


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that lives.

    Attributes:
        local: Whether it runs on this host, so that it can be seen and sent signals.
        beat: Its newest heartbeat; None before the first.
    """

    attempt: int
    generation: str
    pid: int
    started: str
    host: str
    local: bool
    beat: Heartbeat | None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"process {self.pid} on {self.host}"

    def lives(self) -> bool:
        """Whether its process still runs; only for one on this host."""
        return is_alive(self.pid, self.started)


def write_note(folder: Path, note: ProcessNote) -> None:
    """Note the process of a launch durably."""
    write_durably(folder / FILE, msgspec.json.encode(note))


def read_note(folder: Path) -> ProcessNote | None:
    """The process of the newest launch; None if there never was one."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ProcessNote)
    return None


def find_driver(folder: Path, stream: str, ttl_seconds: float) -> Driver | None:
    """The live driver of a stream; None if there is none.

    Of a driver on another host only its beats and its lease are seen: it counts as alive until both have run out.

    Args:
        folder: The stream's state folder.
        ttl_seconds: The lease's time to live.
    """
    beat, note = read_heartbeat(folder), read_note(folder)
    if note is not None and (beat is None or beat.attempt <= note.attempt) and _lives(note):
        own = beat if beat is not None and (beat.attempt, beat.pid) == (note.attempt, note.pid) else None
        # It knows best what it runs: its keeper launched it by the file alone, and the settings may have changed.
        runs = own.generation if own is not None else note.generation
        return Driver(note.attempt, runs, note.pid, note.started, note.host, True, own)
    if beat is None:
        return None
    # Containers share a kernel, and see one another's processes as little as those of another host.
    local = beat.boot == boot_id() and beat.host == socket.gethostname()
    if local:
        lives = is_alive(beat.pid, beat.started)
    else:
        lives = not beat.final and (beat.age() <= SILENT_SECONDS or holds_lease(folder, stream, ttl_seconds, beat))
    if not lives:
        return None
    return Driver(beat.attempt, beat.generation, beat.pid, beat.started, beat.host, local, beat)


def other_holder(folder: Path, stream: str, ttl_seconds: float, driver: Driver | None) -> LeaseRecord | None:
    """Who holds the stream's lease without being its driver: `frazil run`, or a run of Dagster that drains it."""
    if not folder.is_dir():
        return None
    lease = Lease(folder, stream, ttl_seconds).read()
    if lease is None or not lease.held():
        return None
    if driver is not None and (lease.pid, lease.started) == (driver.pid, driver.started):
        return None
    beat = read_heartbeat(folder)
    if beat is not None and (lease.pid, lease.started, lease.boot) == (beat.pid, beat.started, beat.boot):
        # A driver that is gone, or was a moment ago, and whose lease runs out by itself.
        return None
    return lease


def holds_lease(folder: Path, stream: str, ttl_seconds: float, beat: Heartbeat) -> bool:
    """Whether the stream's lease is held, and by the process that beat."""
    lease = Lease(folder, stream, ttl_seconds).read()
    return lease is not None and lease.held() and (lease.pid, lease.boot) == (beat.pid, beat.boot)


def _lives(note: ProcessNote) -> bool:
    return (note.boot, note.host) == (boot_id(), socket.gethostname()) and is_alive(note.pid, note.started)
