"""What a lease says: who runs a stream, and until when that counts."""

from __future__ import annotations

import os
import socket
import time

import msgspec

from jobs.system.boot import boot_clock, boot_id, is_ahead
from jobs.system.processes import is_alive, start_time


class LeaseRecord(msgspec.Struct, frozen=True):
    """Who runs a stream, as kept in the lease file.

    Attributes:
        epoch: Grows with every driver.
        boot: Identity of the host's running kernel; clocks and pids mean nothing to another.
        started: The process's start time as the system tells it, so that a reused pid is not mistaken for it.
        renewed: Seconds of the host's boot clock, which neither stops in suspend nor jumps.
        renewed_wall: Seconds since 1970, for readers on other hosts.
        targets: Table uuids by name, as last seen, so that a recreated table is noticed.
    """

    stream: str
    epoch: int
    host: str
    boot: str
    pid: int
    started: str
    renewed: float
    renewed_wall: float
    ttl_seconds: float
    released: bool = False
    targets: dict[str, str] = {}

    @property
    def ahead(self) -> bool:
        """True if it was written under a clock ahead of ours, so that its time says nothing here."""
        return is_ahead(self.boot, self.renewed_wall)

    def seen_for(self, seconds: float) -> LeaseRecord:
        """The record as an observer judges it who has seen it unchanged for so long: by his own clock."""
        return msgspec.structs.replace(self, renewed_wall=time.time() - seconds) if self.ahead else self

    def expired(self) -> bool:
        """True if the holder has not renewed within the lease's time to live."""
        same = self.boot == boot_id()
        age = boot_clock() - self.renewed if same else time.time() - self.renewed_wall
        return age > self.ttl_seconds

    def held(self) -> bool:
        """True unless released, expired, or its process is known to be dead."""
        if self.released or self.expired():
            return False
        # Containers share a kernel, and see one another's processes as little as those of another host.
        elsewhere = self.boot != boot_id() or self.host != socket.gethostname()
        return elsewhere or is_alive(self.pid, self.started)

    def is_of_this_process(self) -> bool:
        """True if this very process holds it, or held it."""
        me = os.getpid()
        here = (boot_id(), socket.gethostname(), me, str(start_time(me)))
        return (self.boot, self.host, self.pid, self.started) == here
