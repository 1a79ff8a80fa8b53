"""Port of a web UI: the usual one or a free one, kept from other deployments by a file lock."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from jobs.errors import FrazilError
from jobs.system.ports import free_ports, is_port_free

PORT = 3000
_NEAR = 100


class PortClaim:
    """A free port of 127.0.0.1, kept from other `frazil` processes until it is let go, or this one has ended.

    Dagster's webserver binds some seconds after the port was found free. Two that start at once would both find the
    same one, and the loser would talk to the winner's Dagster and take it for its own.

    Args:
        wanted: The port; None for the usual one, or the next free one if that is taken.
        usual: The usual one.

    Raises:
        FrazilError: The port that is wanted is taken.
    """

    def __init__(self, wanted: int | None = None, *, usual: int = PORT) -> None:
        self._lock: int | None = None
        for port in (*range(usual, usual + _NEAR), *free_ports(1)) if wanted is None else (wanted,):
            if is_port_free(port) and self._claimed(port):
                self.port: int = port
                return
        if wanted is not None:
            raise FrazilError(f"Port {wanted} is taken.", fix="name another one with --port")
        raise FrazilError("No port is free on 127.0.0.1.")

    def _claimed(self, port: int) -> bool:
        path = Path(tempfile.gettempdir()) / f"frazil-port-{port}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            # Another user's: whoever that is has it, or had it.
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
