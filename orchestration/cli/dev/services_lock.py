"""Lock on a deployment's services: one `frazil dev` at a time, which notes in the locked file who it is.

The lock goes with the process, however that ends. What a killed one has left running is ended by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jobs.errors import FrazilError
from jobs.state.documents import DAMAGED
from jobs.system.processes import is_alive, start_time, wait_until_dead
from jobs.system.typed_json import decode_json

FILE = "services.json"
_END_SECONDS = 10.0


class Service(msgspec.Struct, frozen=True):
    """A process of the deployment's services, told by pid and start time."""

    pid: int
    started: str


class Claim(msgspec.Struct, frozen=True):
    """Who runs the deployment's services.

    Attributes:
        since: Seconds since 1970.
        url: Of the web UI; empty for the moment until it is known.
        services: By name.
    """

    pid: int
    since: float
    url: str = ""
    services: dict[str, Service] = {}


class ServicesLock:
    """The claim of this process on a deployment's services, from `acquire` to `release`.

    Args:
        folder: Dagster's home of the deployment; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._path: Path = folder / FILE
        self._lock: int | None = None
        self._claim: Claim = Claim(os.getpid(), 0.0)

    def acquire(self) -> dict[str, int]:
        """Claim the services, unless this process has them already.

        Returns:
            The services that a killed claimant had left running, and that were ended: pids by name.

        Raises:
            FrazilError: Another process has them; who, since when and where.
        """
        if self._lock is not None:
            return {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            former = _read(lock)
            os.close(lock)
            raise _refused(former) from None
        former = _read(lock)
        self._lock = lock
        self._claim = Claim(os.getpid(), time.time())
        self._write()
        return _end_leftovers(former.services) if former is not None else {}

    def record_url(self, url: str) -> None:
        """Note where the web UI is."""
        self._claim = msgspec.structs.replace(self._claim, url=url)
        self._write()

    def record_services(self, services: Mapping[str, int]) -> None:
        """Note the services' processes, by name, so that the next claimant finds them if this one is killed."""
        noted = {name: Service(pid, started) for name, pid in services.items() if (started := start_time(pid))}
        self._claim = msgspec.structs.replace(self._claim, services=noted)
        self._write()

    def release(self) -> None:
        """Let others have them."""
        if self._lock is not None:
            os.truncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def _write(self) -> None:
        # In place: the lock is the file's, not its name's.
        if self._lock is not None:
            data = msgspec.json.encode(self._claim)
            os.pwrite(self._lock, data, 0)
            os.truncate(self._lock, len(data))


def _read(file: int) -> Claim | None:
    with contextlib.suppress(*DAMAGED):
        return decode_json(os.pread(file, os.fstat(file).st_size, 0), Claim)
    return None


def _refused(claim: Claim | None) -> FrazilError:
    if claim is None:
        return FrazilError("Another process is just starting or ending this deployment's services.", fix="try again")
    since = datetime.fromtimestamp(claim.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    where = f", Dagster at {claim.url}" if claim.url else ""
    look = f"open {claim.url}; or " if claim.url else ""
    return FrazilError(
        f"This deployment's services run already: process {claim.pid}, since {since}{where}.",
        fix=f"{look}end that one first, with Ctrl-C or kill {claim.pid}",
    )


def _end_leftovers(services: Mapping[str, Service]) -> dict[str, int]:
    """End what a killed claimant left, and of it only the services: runs that are under way may finish."""
    left = {name: each for name, each in services.items() if is_alive(each.pid, each.started)}
    for each in left.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    for each in left.values():
        if not wait_until_dead(each.pid, each.started, max(0.0, deadline - time.monotonic())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
            wait_until_dead(each.pid, each.started, _END_SECONDS)
    return {name: each.pid for name, each in left.items()}
