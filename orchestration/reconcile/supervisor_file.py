"""The supervisor's own sign of life, for commands that do not ask Dagster: `<state>/supervisor.json`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from jobs.state.files import replace_whole

FILE = "supervisor.json"
SILENT_SECONDS = 60.0


class SupervisorNote(msgspec.Struct, frozen=True):
    """The newest tick.

    Attributes:
        at: When it was; seconds since 1970.
        decisions: By stream: `action`, `sentence` and `fix`, as the tick decided.
    """

    at: float
    host: str
    pid: int
    decisions: dict[str, dict[str, str]] = {}

    def silent_for(self, now: float) -> float:
        """Seconds since the newest tick; more than `SILENT_SECONDS` says that nobody supervises."""
        return max(0.0, now - self.at)

    def is_silent(self, now: float) -> bool:
        """Whether nobody supervises, so that what the newest tick decided is of no account any more."""
        return self.silent_for(now) > SILENT_SECONDS


def read_supervisor_note(state: Path) -> SupervisorNote | None:
    """The newest tick's note; None if there never was one.

    Args:
        state: The folder of all state, `Settings.state`.
    """
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((state / FILE).read_bytes(), type=SupervisorNote)
    return None


def write_supervisor_note(state: Path, note: SupervisorNote) -> None:
    """Replace the note, so that a reader sees the old one or the new one."""
    replace_whole(state / FILE, msgspec.json.encode(note))
