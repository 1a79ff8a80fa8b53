"""Waiting for conditions, with a deadline, and never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

# A machine with other work is several times slower; a wait that ends with its condition costs nothing on an idle one.
_SLOWNESS = 4.0
_LEAST_SECONDS = 120.0


def wait_for(condition: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait until `condition` holds, or fail naming what was waited for.

    A slow condition, about tables or Dagster, is checked less often, for at most a tenth of the time, as the awaited
    work needs the processor, too.

    Args:
        condition: Function that is called repeatedly.
        what: Name of the condition in the failure.
        seconds: Longest time on a machine without other work. The deadline is four times that, and at least two
            minutes. A test about the time itself measures it.
    """
    began = time.monotonic()
    seconds = max(_SLOWNESS * seconds, _LEAST_SECONDS)
    deadline = began + seconds
    while not condition():
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(min(max(0.02, 9 * (now - began)), 1.0))
        began = time.monotonic()
