"""Waiting for conditions, with a deadline, and never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait until `condition` holds, or fail naming what was waited for.

    What takes long to ask, as tables and Dagster do, is asked less often, for a tenth of the time at most: what is
    waited for needs the processor, too.
    """
    began = time.monotonic()
    deadline = began + seconds
    while not condition():
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(min(max(0.02, 9 * (now - began)), 1.0))
        began = time.monotonic()
