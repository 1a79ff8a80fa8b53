"""Driver of a stream, as an observer sees it: which process it is, where, and what has launched it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import LaunchedProcess, process_name
from jobs.system.boot import boot_id
from jobs.system.processes import is_alive


@dataclass(frozen=True, slots=True)
class Driver:
    """The process of a driver, alive when it was observed.

    Attributes:
        local: Whether it runs on this host, so that it can be seen and sent signals.
        heartbeat: Its newest; None before the first.
        frozen: Whether it neither writes heartbeats nor holds the lease any more.
        group: The group whose driver it is; its process carries other streams, too.
        launched: It as its launcher knows it; None where nobody has recorded that.
    """

    attempt: int
    generation: str
    pid: int
    started: str
    host: str
    local: bool
    heartbeat: Heartbeat | None
    frozen: bool = False
    group: str | None = None
    launched: LaunchedProcess | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.launched is None or not self.launched.remote:
            return f"process {self.pid} on {self.host}"
        return process_name(msgspec.structs.replace(self.launched, pid=self.pid, host=self.host))

    @property
    def process(self) -> LaunchedProcess:
        """It as a launcher looks at it, and ends it."""
        if self.launched is not None:
            return self.launched
        # Of a driver that was started by hand, or whose note is of another attempt.
        boot = boot_id() if self.local else ""
        return LaunchedProcess(
            self.attempt, self.generation, self.pid, self.started, boot, self.host, time.time(), self.group
        )

    def lives(self) -> bool:
        """Whether its process runs now; only for one on this host."""
        return is_alive(self.pid, self.started)
