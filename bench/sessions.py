"""Usage of a session's processes, sampled from /proc: a command with all that it starts, in whatever process group."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

_EVERY_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


class SessionUsage:
    """Resources of a session's processes; those of an ended process as last sampled.

    Args:
        session: Id of the session, which is that of its first process.

    Attributes:
        peak: Peak memory of all processes in bytes; shared memory counts once.
    """

    def __init__(self, session: int) -> None:
        self.session: int = session
        self.peak: int = 0
        self._processor: dict[int, float] = {}
        self._ended: threading.Event = threading.Event()
        self._thread: threading.Thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def processor(self) -> float:
        """Seconds of processor."""
        return sum(self._processor.values())

    def follow(self) -> None:
        """Sample until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.is_set():
            size = 0
            for folder in Path("/proc").glob("[0-9]*"):
                # A process may end while it is looked at.
                with contextlib.suppress(OSError, ValueError):
                    size += self._look(folder)
            self.peak = max(self.peak, size)
            self._ended.wait(_EVERY_SECONDS)

    def _look(self, folder: Path) -> int:
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        if int(fields[3]) != self.session:
            return 0
        self._processor[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
        proportional = (folder / "smaps_rollup").read_text().split("Pss:")[1].split()[0]
        return int(proportional) * 1024
