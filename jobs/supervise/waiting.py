"""Waiting for a condition of a driver, or of what is kept of it, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], seconds: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Wait until `condition` holds; False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True
