"""Heartbeat of the supervisor for commands that do not ask Dagster: its newest tick, in `<state>/supervisor.json`."""

from __future__ import annotations

import contextlib

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

KEY = "supervisor.json"
SILENT_SECONDS = 60.0
# Key of a decision about a stream without a driver, of which none is started before a person acts.
HALTED = "halted"


class SupervisorHeartbeat(msgspec.Struct, frozen=True):
    """The newest tick.

    Attributes:
        at: When the tick was; seconds since 1970.
        decisions: By stream: `action`, `sentence` and `fix`, as the tick decided; and `halted` if it is.
    """

    at: float
    host: str
    pid: int
    decisions: dict[str, dict[str, str]] = {}

    def silent_for(self, now: float) -> float:
        """Seconds since the newest tick; more than `SILENT_SECONDS` means that nobody supervises."""
        return max(0.0, now - self.at)

    def is_silent(self, now: float) -> bool:
        """Whether nobody supervises, so that the newest tick's decisions no longer count."""
        return self.silent_for(now) > SILENT_SECONDS


def read_supervisor_heartbeat(store: StateStore) -> SupervisorHeartbeat | None:
    """The newest tick's note; None if there never was one."""
    with contextlib.suppress(OSError, *DAMAGED):
        return decode_json(store.get(KEY) or b"", SupervisorHeartbeat)
    return None


def write_supervisor_heartbeat(store: StateStore, note: SupervisorHeartbeat) -> None:
    """Replace the note, so that a reader sees the old one or the new one."""
    store.put(KEY, msgspec.json.encode(note), durable=False)
