"""Boot identity and boot clock of the running kernel, and whether another host's clock is ahead."""

from __future__ import annotations

import time
from pathlib import Path

# Two hosts' clocks always differ a little, and that matters to nobody.
AHEAD_SECONDS = 5.0


def boot_id() -> str:
    """Identity of the running kernel; empty where the system has none to offer."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def boot_clock() -> float:
    """Seconds on the clock of this boot; means nothing to another boot."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def is_ahead(boot: str, written_at: float) -> bool:
    """Whether a document was written under a clock ahead of ours, by another host or before this one started anew.

    Args:
        boot: Of the kernel that it was written on.
        written_at: As it says itself, seconds since 1970.
    """
    return boot != boot_id() and written_at > time.time() + AHEAD_SECONDS
