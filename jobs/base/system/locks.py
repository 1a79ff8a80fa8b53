"""File locks between processes: the system releases a lock when its process ends, however it ends.

filelock is not used: its import takes 33 to 190 ms, and it cannot report that a caller waits.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.base.system.private_files import private_opener

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def exclusive(path: Path, *, deadline_seconds: float, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`, which is made if needed and stays.

    Args:
        path: The lock file; its folder must exist, on a local file system.
        deadline_seconds: How long to wait for another holder.
        on_wait: Called once if there is another holder.

    Raises:
        TimeoutError: The other holder kept it past the deadline.
    """
    deadline = time.monotonic() + deadline_seconds
    waits = False
    with open(path, "a", opener=private_opener) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is held by another process") from None
                if on_wait and not waits:
                    on_wait()
                    waits = True
                time.sleep(_POLL_SECONDS)
        yield
