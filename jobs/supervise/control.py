"""What an operator wants of a stream: one small document of its state, which survives restarts of everything.

Only control actions write it, under the stream's control lock; the driver reads it between batches, and while it waits.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jobs.errors import FrazilError
from jobs.state.store import StateStore

KEY = "control.json"
# A file of the stream's folder on this machine, held for writing what control actions write.
LOCK = "control.lock"
Wish = Literal["running", "paused", "stopped"]


class Control(msgspec.Struct, frozen=True):
    """The operator's newest word on a stream.

    Attributes:
        wish: `running`: as the stream's file says; `paused`: the driver stays and reads nothing; `stopped`: no driver.
        end_attempt: Drivers of this attempt and of earlier ones end after their batch; 0 for none. A restart and the
            roll-out of a changed file raise it.
        action: What was asked for, such as `pause`.
        reason, by: Why, and who.
        at: Seconds since 1970.
    """

    wish: Wish = "running"
    end_attempt: int = 0
    action: str = ""
    reason: str = ""
    by: str = ""
    at: float = 0.0

    def sentence(self, stream: str) -> str:
        """What was asked of a stream, by whom, and why."""
        who = f" by {self.by}" if self.by else ""
        return f"stream {stream} is {self.wish}{who}{f': {self.reason}' if self.reason else ''}."


def read_control(store: StateStore) -> Control:
    """The operator's word; `running` if there never was one.

    Raises:
        FrazilError: The document is damaged: nobody can tell what the operator wanted.
    """
    content = store.get(KEY)
    if content is None:
        return Control()
    try:
        return msgspec.json.decode(content, type=Control)
    except msgspec.DecodeError as problem:
        place = store.place(KEY)
        raise FrazilError(
            f"{place} cannot be read ({problem}), so what was last asked of the stream is not known.",
            fix=f"remove {place}; then pause or stop the stream again if that is what is wanted",
        ) from None


def write_control(store: StateStore, control: Control) -> None:
    """Replace the operator's word durably."""
    store.put(KEY, msgspec.json.encode(control))
