"""Waiting with a deadline for a condition, such as of a driver or its documents."""

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


def wait_until_deadline(condition: Callable[[], bool], deadline: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Wait until `condition` holds; False once the deadline has passed, whether it holds or not.

    So a loop that repeats something whenever it holds comes to an end.

    Args:
        deadline: Deadline by `time.monotonic`.
    """
    left = deadline - time.monotonic()
    return left > 0 and wait_until(condition, left, poll_seconds)
