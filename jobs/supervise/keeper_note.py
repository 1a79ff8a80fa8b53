"""What a keeper says of itself: `keeper.json` of the stream's state, which the keeper alone writes.

Read and written with the standard library only, since a keeper that waits is to be small.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass

from jobs.state.store import StateStore
from jobs.system.boot import boot_id
from jobs.system.processes import is_alive, start_time

KEY = "keeper.json"


@dataclass(frozen=True, slots=True)
class KeeperNote:
    """A keeper as it last said.

    Attributes:
        attempt: The launch that it keeps.
        pause: Its driver has ended; seconds from then until it starts the next one. 0 before.
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
        """Whether its process runs, as far as can be seen from this host."""
        return (self.boot, self.host) == (boot_id(), socket.gethostname()) and is_alive(self.pid, self.started)


def read_keeper(store: StateStore) -> KeeperNote | None:
    """The newest keeper's note; None without one that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return KeeperNote(**json.loads(store.get(KEY) or b""))
    return None


def find_keeper(store: StateStore, attempt: int) -> KeeperNote | None:
    """The living keeper of a launch; None if it has none that can be seen from this host."""
    note = read_keeper(store)
    return note if note is not None and note.attempt == attempt and note.lives() else None


def write_keeper(store: StateStore, attempt: int, pause: float = 0.0) -> None:
    """Say that this process keeps a launch.

    Raises:
        OSError: The state cannot be written.
    """
    pid = os.getpid()
    note = KeeperNote(attempt, pid, str(start_time(pid)), boot_id(), socket.gethostname(), time.time(), pause)
    store.put(KEY, json.dumps(asdict(note)).encode(), durable=False)
