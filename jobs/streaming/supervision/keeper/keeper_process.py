"""Watchdog process of a driver: `python -m jobs.streaming.supervision.keeper.keeper_process ORDER`.

It waits for the driver's end with a few megabytes, as it imports little; what it needs to start the next driver is
imported then. It ends after it has started that driver, which starts its own watchdog. There is at most one per stream
and machine, by a lock that its process holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

from jobs.base.system.private_files import private_opener
from jobs.base.system.processes import is_alive
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.keeper_record import write_keeper

LOCK = "keeper.lock"
_LOOK_SECONDS = 1.0


def main() -> int:
    """Wait for a driver's end, and start the next one if it is wanted; returns the exit status."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    folder = Path(order["folder"])
    with open(folder / LOCK, "a", opener=private_opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        with contextlib.suppress(OSError):
            write_keeper(LocalStore(folder), int(order["attempt"]))
        wait_for_end(int(order["pid"]), str(order["started"]))
        from jobs.streaming.supervision.keeper.keeper_restart import restart_driver

        restart_driver(order)
    return 0


def wait_for_end(pid: int, started: str) -> None:
    """Wait until a process has ended, which need not be a child of this one."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            # The pid may have been reused before it was opened.
            if is_alive(pid, started):
                select.select([process], [], [])
            os.close(process)
    while is_alive(pid, started):
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
