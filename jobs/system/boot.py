"""The running kernel's identity, and its clock that neither stops in suspend nor jumps."""

from __future__ import annotations

import time
from pathlib import Path


def boot_id() -> str:
    """Identity of the running kernel; empty where the system has none to offer."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def boot_clock() -> float:
    """Seconds on the clock of this boot; means nothing to another boot."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
