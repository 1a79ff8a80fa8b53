"""Keeper process of a stream: `python -m jobs.supervise.keeper_process ORDER`, started by the driver that it keeps.

While the driver runs it only waits, with a few megabytes: it imports little. What it needs to judge, and to launch, is
imported when something has happened, the client of a shared state store included. There is one per stream and machine
at most, by a lock that goes with its process.
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

from jobs.state.local_store import LocalStore
from jobs.supervise.keeper_record import BEAT_MARK, LAUNCH_MARK, QUIET_SECONDS, write_keeper
from jobs.system.private_files import private_opener
from jobs.system.processes import is_alive

LOCK = "keeper.lock"
_LOOK_SECONDS = 1.0


def main() -> int:
    """Keep a driver for as long as it is wanted; returns the exit status."""
    order: dict[str, Any] = json.loads(sys.argv[1])
    folder = Path(order["folder"])
    with open(folder / LOCK, "a", opener=private_opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        with contextlib.suppress(OSError):
            write_keeper(LocalStore(folder), int(order["attempt"]))
        marks = (LAUNCH_MARK, BEAT_MARK) if "store" in order else ("launch.json", "heartbeat.json")
        wait_for_driver(folder, int(order["pid"]), str(order["started"]), marks)
        from jobs.supervise.kept_stream import KeptStream

        kept = KeptStream(order)
        while kept.run_once():
            wait_for_driver(folder, kept.pid, kept.started, marks)
    return 0


def wait_for_driver(
    folder: Path, pid: int, started: str, marks: tuple[str, str] = ("launch.json", "heartbeat.json")
) -> None:
    """Wait until a driver has ended, has been silent for a while, or something was launched since.

    Args:
        folder: The stream's state folder.
        pid, started: The driver's process.
        marks: The files of the folder that change with a launch, and with a heartbeat.
    """
    launch, heartbeat = (folder / mark for mark in marks)
    launched, beaten = _changed(launch), _changed(heartbeat)
    heard = time.monotonic()
    with contextlib.ExitStack() as opened:
        ended = _end_of(pid, opened)
        while is_alive(pid, started) and _changed(launch) == launched:
            beat = _changed(heartbeat)
            if beat != beaten:
                beaten, heard = beat, time.monotonic()
            if time.monotonic() - heard > QUIET_SECONDS:
                return
            # Told by the kernel at once where it does that, and otherwise by looking.
            if ended is not None:
                ended.poll(_LOOK_SECONDS * 1000)
            else:
                time.sleep(_LOOK_SECONDS)


def _end_of(pid: int, opened: contextlib.ExitStack) -> select.poll | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    opened.callback(os.close, descriptor)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll


def _changed(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_ino


if __name__ == "__main__":
    sys.exit(main())
