"""Boot identity and boot clock of the running kernel, and whether another host's clock is ahead."""

from __future__ import annotations

import time
from pathlib import Path

# Two hosts' clocks always differ a little, which does no harm.
AHEAD_SECONDS = 5.0


def boot_id() -> str:
    """Return the identity of the running kernel; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def boot_clock() -> float:
    """Return seconds on the clock of this boot; values of two boots cannot be compared."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def is_ahead(boot: str, written_at: float) -> bool:
    """Whether a document's clock was ahead of ours: another host's, or this host's before its last boot.

    Args:
        boot: Boot identity of the kernel that the document was written on.
        written_at: Time in the document, in seconds since 1970.
    """
    return boot != boot_id() and written_at > time.time() + AHEAD_SECONDS
