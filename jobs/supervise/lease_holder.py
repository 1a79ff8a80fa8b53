"""Holder of a stream's lease, as an observer sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from jobs.state.lease_record import LeaseRecord

LeaseState: TypeAlias = Literal["none", "live", "expired", "released", "dead"]


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Who holds the stream's lease, or held it last.

    Attributes:
        state: `live`: held; `expired`: not renewed in time; `dead`: not released, and its process is known to be gone.
        started, boot: Tell the process apart from a later one with the same pid, as in the lease.
    """

    state: LeaseState = "none"
    epoch: int = 0
    pid: int = 0
    started: str = ""
    boot: str = ""
    host: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"process {self.pid} on {self.host}"


def lease_holder(record: LeaseRecord | None) -> LeaseHolder:
    """Who holds a lease by its newest document; None: nobody ever held it."""
    if record is None:
        return LeaseHolder()
    return LeaseHolder(_state(record), record.epoch, record.pid, record.started, record.boot, record.host)


def _state(record: LeaseRecord) -> LeaseState:
    if record.released:
        return "released"
    if record.expired():
        return "expired"
    return "live" if record.held() else "dead"
