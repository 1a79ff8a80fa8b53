"""Control request: an operator's newest request for a stream, in a small document that survives all restarts.

Only control actions write it, under the stream's control lock; the driver reads it between batches, and while it waits.
The lock is local to a machine. So if actions on several machines collide, the one that did not see the other's request
is refused.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

log = logging.getLogger(__name__)

KEY = "control.json"
# File of the stream's local folder, locked while control actions write.
LOCK = "control.lock"
DesiredMode = Literal["running", "paused", "stopped"]
DriverOrder = Literal["run", "pause", "end"]

_POLL_SECONDS = 0.25
# Used if each look is a request to a service.
_SHARED_POLL_SECONDS = 2.0


class ControlRequest(msgspec.Struct, frozen=True):
    """The operator's newest request.

    Attributes:
        mode: `running`: by the stream's file; `paused`: the driver stays and reads nothing; `stopped`: no driver.
        end_attempt: Drivers of this attempt and of earlier ones end after their batch; 0 for none. A restart and the
            roll-out of a changed file raise it.
        action: Requested action, such as `pause`.
        reason, by: Reason and author.
        at: Time, seconds since 1970.
        paused: For a stopped stream, the reason why it was paused until then; None if it was not.
    """

    mode: DesiredMode = msgspec.field(default="running", name="wish")
    end_attempt: int = 0
    action: str = ""
    reason: str = ""
    by: str = ""
    at: float = 0.0
    paused: str | None = None

    def sentence(self, stream: str) -> str:
        """Request for a stream, its author and its reason, as a sentence."""
        return f"stream {stream} is {self.mode}{self.origin}."

    @property
    def origin(self) -> str:
        """Author and reason, as the end of a sentence."""
        return f"{f' by {self.by}' if self.by else ''}{f': {self.reason}' if self.reason else ''}"


_DECODER = typed_decoder(ControlRequest)


def read_control(store: StateStore) -> ControlRequest:
    """The newest request; `running` if there never was one.

    Raises:
        FrazilError: The document is damaged, so the operator's request is unknown.
    """
    return _decoded(store, store.get(KEY))


def _decoded(store: StateStore, content: bytes | None) -> ControlRequest:
    if content is None:
        return ControlRequest()
    try:
        return _DECODER.decode(content)
    except DAMAGED as problem:
        place = store.place(KEY)
        raise FrazilError(
            f"{place} cannot be read ({problem}), so what was last asked of the stream is not known.",
            fix=f"remove {place}; then pause or stop the stream again if that is what is wanted",
        ) from None


def write_control(store: StateStore, control: ControlRequest, former: ControlRequest | None = None) -> None:
    """Replace the request durably.

    Args:
        former: Request on which this one is based; None: any.

    Raises:
        FrazilError: Another machine has written another request since.
    """
    content = msgspec.json.encode(control)
    if former is None or not store.shared:
        # The writer holds the stream's control lock.
        store.put(KEY, content)
        return
    found = store.get(KEY)
    if _decoded(store, found) != former or not store.replace_if_unchanged(KEY, found, content):
        later = read_control(store)
        raise FrazilError(
            f"something else was asked of the stream at the same time: {later.action or 'nothing'} by {later.by}, with "
            f"the reason: {later.reason}.",
            fix="run this again, if it is still wanted",
        )


class ControlReader:
    """Reads the control request for one driver.

    Args:
        store: The stream's part of the state store.
        attempt: Attempt of the driver.

    Attributes:
        signalled: Whether SIGTERM arrived.
        superseded: Returns whether a later attempt has written a heartbeat.
    """

    def __init__(self, store: StateStore, attempt: int) -> None:
        self._store: StateStore = store
        self._attempt: int = attempt
        self._last: ControlRequest = ControlRequest()
        self._reported: str | None = None
        self._read_at: float | None = None
        self.signalled: bool = False
        self.superseded: Callable[[], bool] = lambda: False

    def end_on_signals(self) -> None:
        """Let SIGTERM and Ctrl-C end the driver after its batch; a closed terminal is ignored."""

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.signalled = True

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def now(self) -> DriverOrder:
        """Present order for the driver. A document that cannot be read changes nothing."""
        if self.signalled or self.superseded():
            return "end"
        try:
            self._last = self._read()
            self._reported = None
        except (FrazilError, OSError) as problem:
            if self._reported != str(problem):
                self._reported = str(problem)
                log.warning("%s", problem)
        if self._last.mode == "stopped" or self._last.end_attempt >= self._attempt:
            return "end"
        return "pause" if self._last.mode == "paused" else "run"

    def _read(self) -> ControlRequest:
        now = time.monotonic()
        if self._store.shared and self._read_at is not None and now - self._read_at < _SHARED_POLL_SECONDS:
            return self._last
        self._read_at = now
        return read_control(self._store)

    def wait_while(self, order: DriverOrder, seconds: float = float("inf")) -> None:
        """Wait until the order changes, or for some seconds."""
        deadline = time.monotonic() + seconds
        while self.now() == order and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_SECONDS, left))
