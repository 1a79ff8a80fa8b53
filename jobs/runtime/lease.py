"""One driver per stream: a lease on a local folder, taken by making the next epoch's file.

The lease keeps two live drivers apart and makes a take-over quick. It is not what makes commits safe: a driver that
slept through a take-over is refused by the claims in the tables, whatever its clock says.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobs.commit.errors import FencedError
from jobs.errors import FrazilError
from jobs.runtime.durable import create_durably, write_durably
from jobs.runtime.processes import is_alive, start_time


class LeaseHeldError(FrazilError):
    """Another driver runs this stream."""


class LeaseRecord(msgspec.Struct, frozen=True):
    """Who runs a stream, as kept in the lease file.

    Attributes:
        epoch: Grows with every driver.
        boot: Identity of the host's running kernel; clocks and pids mean nothing to another.
        started: The process's start time as the system tells it, so that a reused pid is not mistaken for it.
        renewed: Seconds of the host's boot clock, which neither stops in suspend nor jumps.
        renewed_wall: Seconds since 1970, for readers on other hosts.
        targets: Table uuids by name, as last seen, so that a recreated table is noticed.
    """

    stream: str
    epoch: int
    host: str
    boot: str
    pid: int
    started: str
    renewed: float
    renewed_wall: float
    ttl_seconds: float
    released: bool = False
    targets: dict[str, str] = {}

    def expired(self) -> bool:
        """True if the holder has not renewed within the lease's time to live."""
        same = self.boot == boot_id()
        age = _boot_clock() - self.renewed if same else time.time() - self.renewed_wall
        return age > self.ttl_seconds

    def held(self) -> bool:
        """True unless released, expired, or its process is known to be dead."""
        if self.released or self.expired():
            return False
        return self.boot != boot_id() or is_alive(self.pid, self.started)


class Lease:
    """The lease of one stream.

    Every epoch has a file of its own, made only if it is not there yet, and the greatest one counts. So taking the
    lease is one atomic step, and no lock is ever held, which a process that is stopped at the wrong moment would keep.
    An object store offers the same step as a conditional PUT.

    Args:
        folder: The stream's state folder.
        stream: The stream's id.
        ttl_seconds: How long a holder that does not renew keeps it.
    """

    def __init__(self, folder: Path, stream: str, ttl_seconds: float) -> None:
        self._folder: Path = folder
        self._stream: str = stream
        self._ttl: float = ttl_seconds
        self._targets: dict[str, str] = {}
        self._writing: threading.Lock = threading.Lock()
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread | None = None
        self.epoch: int = 0

    def read(self) -> LeaseRecord | None:
        """The lease as it stands, or None if nobody ever held it."""
        while True:
            newest = max(self._folder.glob("lease-*.json"), default=None)
            if newest is None:
                return None
            try:
                return msgspec.json.decode(newest.read_bytes(), type=LeaseRecord)
            except FileNotFoundError:
                # A later holder has just tidied up.
                continue

    def acquire(self, above: int) -> int:
        """Take the lease with an epoch greater than `above` and than every earlier one, and keep renewing it.

        Returns:
            The epoch.

        Raises:
            LeaseHeldError: A live driver holds it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            current = self.refuse_if_held()
            self.epoch = 1 + max(above, current.epoch if current else 0)
            self._targets = dict(current.targets) if current else {}
            if create_durably(self._path(self.epoch), self._encoded()):
                break
        for former in self._folder.glob("lease-*.json"):
            if former < self._path(self.epoch):
                former.unlink(missing_ok=True)
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew_for_ever, name="lease", daemon=True)
        self._thread.start()
        return self.epoch

    def refuse_if_held(self) -> LeaseRecord | None:
        """Say who runs the stream, if anybody does; returns the lease as it stands.

        Raises:
            LeaseHeldError: A live driver holds it.
        """
        current = self.read()
        if current and current.held():
            raise LeaseHeldError(
                f"stream {self._stream} is run by process {current.pid} on {current.host} (epoch {current.epoch}).",
                fix=f"wait for it to end, or stop process {current.pid} and run this again",
            )
        return current

    def verify(self) -> None:
        """Raise unless the lease is still this driver's; renews it.

        Raises:
            FencedError: Another driver took it, or its file is gone.
        """
        with self._writing:
            if not self._is_ours():
                current = self.read()
                raise FencedError(self._stream, self.epoch, current.epoch if current else 0, "the lease")
            write_durably(self._path(self.epoch), self._encoded())

    def remember(self, targets: Mapping[str, str]) -> None:
        """Note the table uuids of the stream's targets."""
        with self._writing:
            if self._is_ours():
                self._targets = dict(targets)
                write_durably(self._path(self.epoch), self._encoded())

    def release(self) -> None:
        """Give the lease back, if it is still this driver's."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        with self._writing:
            if self._is_ours():
                write_durably(self._path(self.epoch), self._encoded(released=True))

    def _path(self, epoch: int) -> Path:
        return self._folder / f"lease-{epoch:08d}.json"

    def _is_ours(self) -> bool:
        newest = max(self._folder.glob("lease-*.json"), default=None)
        return newest == self._path(self.epoch)

    def _encoded(self, *, released: bool = False) -> bytes:
        pid = os.getpid()
        record = LeaseRecord(
            stream=self._stream,
            epoch=self.epoch,
            host=socket.gethostname(),
            boot=boot_id(),
            pid=pid,
            started=str(start_time(pid)),
            renewed=_boot_clock(),
            renewed_wall=time.time(),
            ttl_seconds=self._ttl,
            released=released,
            targets=self._targets,
        )
        return msgspec.json.encode(record)

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            try:
                self.verify()
            except FencedError:
                return
            except OSError:
                # A full or unreachable disk: try again; the commit verifies for itself.
                continue


def boot_id() -> str:
    """Identity of the running kernel; empty where the system has none to offer."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _boot_clock() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
