"""One driver per stream: a lease on a local folder, taken and kept by compare-and-swap on its epoch.

The lease keeps two live drivers apart and makes a take-over quick. It is not what makes commits safe: a driver that
slept through a take-over is refused by the claims in the tables, whatever its clock says.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from jobs.commit.errors import FencedError
from jobs.errors import FrazilError
from jobs.runtime.durable import write_durably
from jobs.runtime.locks import exclusive
from jobs.runtime.processes import is_alive, start_time

LOCK_DEADLINE_SECONDS = 10.0


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

    Args:
        folder: The stream's state folder.
        stream: The stream's id.
        ttl_seconds: How long a holder that does not renew keeps it.
    """

    def __init__(self, folder: Path, stream: str, ttl_seconds: float) -> None:
        self._path: Path = folder / "lease.json"
        self._lock_path: Path = folder / "lease.lock"
        self._stream: str = stream
        self._ttl: float = ttl_seconds
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread | None = None
        self.epoch: int = 0
        self.lost: FencedError | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> LeaseRecord | None:
        """The lease as it stands, or None if nobody ever held it."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=LeaseRecord)
        except FileNotFoundError:
            return None

    def acquire(self, above: int) -> int:
        """Take the lease with an epoch greater than `above` and than every earlier one, and keep renewing it.

        Returns:
            The epoch.

        Raises:
            LeaseHeldError: A live driver holds it.
        """
        with self._locked():
            current = self.refuse_if_held()
            self.epoch = 1 + max(above, current.epoch if current else 0)
            self._write(current.targets if current else {})
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
            FencedError: Another driver took it.
        """
        with self._locked():
            current = self.read()
            if current is None or current.epoch != self.epoch:
                self.lost = FencedError(self._stream, self.epoch, current.epoch if current else 0, "the lease")
                raise self.lost
            self._write(current.targets)

    def remember(self, targets: Mapping[str, str]) -> None:
        """Note the table uuids of the stream's targets."""
        with self._locked():
            current = self.read()
            if current and current.epoch == self.epoch:
                self._write(dict(targets))

    def release(self) -> None:
        """Give the lease back, if it is still this driver's."""
        self._stop.set()
        if self._thread:
            self._thread.join()
        with self._locked():
            current = self.read()
            if current and current.epoch == self.epoch:
                write_durably(self._path, msgspec.json.encode(msgspec.structs.replace(current, released=True)))

    def _write(self, targets: Mapping[str, str]) -> None:
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
            targets=dict(targets),
        )
        write_durably(self._path, msgspec.json.encode(record))

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            try:
                self.verify()
            except FencedError:
                return
            except (OSError, LeaseHeldError):
                # A full or unreachable disk, or a stopped process: try again; the commit verifies for itself.
                continue

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # It is held for milliseconds, unless its holder was stopped in between.
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self._lock_path, deadline_seconds=LOCK_DEADLINE_SECONDS))
            except TimeoutError:
                raise LeaseHeldError(
                    f"stream {self._stream}: another process keeps {self._lock_path} locked and does not go on.",
                    fix=f"find it with `fuser {self._lock_path}` and end it, then run this again",
                ) from None
            yield


def boot_id() -> str:
    """Identity of the running kernel; empty where the system has none to offer."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _boot_clock() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
