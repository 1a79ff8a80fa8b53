"""Watchdog's record of itself: `keeper.json` of the stream's state, which only the watchdog writes.

It is read and written with the standard library only, to keep a waiting watchdog small.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass

from jobs.base.system.boot import boot_id
from jobs.base.system.processes import lives_here, start_time
from jobs.clients.state_store.store import StateStore

KEY = "keeper.json"


@dataclass(frozen=True, slots=True)
class KeeperRecord:
    """A watchdog, by its last record.

    Attributes:
        attempt: Number of the launch that it watches.
        pause: Seconds from the end of its driver until it starts the next one; 0 while the driver runs.
        at: Seconds since 1970.
    """

    attempt: int
    pid: int
    started: str
    boot: str
    host: str
    at: float
    pause: float = 0.0

    def lives(self) -> bool:
        """Whether its process runs, as far as this host can see."""
        return bool(lives_here(self.pid, self.started, self.boot, self.host))


def read_keeper(store: StateStore) -> KeeperRecord | None:
    """Record of the newest watchdog; None without a readable one."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return KeeperRecord(**json.loads(store.get(KEY) or b""))
    return None


def find_keeper(store: StateStore, attempt: int) -> KeeperRecord | None:
    """Record of the living watchdog of a launch; None if this host sees none."""
    record = read_keeper(store)
    return record if record is not None and record.attempt == attempt and record.lives() else None


def write_keeper(store: StateStore, attempt: int, pause: float = 0.0) -> None:
    """Record that this process watches a launch.

    Raises:
        OSError: The state cannot be written.
    """
    pid = os.getpid()
    record = KeeperRecord(attempt, pid, str(start_time(pid)), boot_id(), socket.gethostname(), time.time(), pause)
    store.put(KEY, json.dumps(asdict(record)).encode(), durable=False)
