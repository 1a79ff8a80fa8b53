"""Pauses of a driver in the commit protocol's small world: where its process can be killed, or sleep."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.tables.commit.protocol_driver import Driver


class Killed(BaseException):
    """The driver's process was killed here."""


def pause(at: str) -> None:
    """Stop here until the script lets the driver of this thread go on; nothing for the script's own thread."""
    driver: Driver | None = getattr(threading.current_thread(), "driver", None)
    if driver is not None:
        driver.pause(at)


def write_hangs() -> None:
    """The record's write is through; it hangs for as long as the script says, and may raise only then."""
    pause("after write")
    driver: Driver | None = getattr(threading.current_thread(), "driver", None)
    if driver is not None and driver.write_fails_late:
        driver.write_fails_late = False
        raise OSError(errno.EIO, "the answer came late, and it was an error")
