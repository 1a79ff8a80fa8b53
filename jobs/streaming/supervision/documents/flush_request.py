"""Flush request: asks a stream to land now what its topics hold, in a small document beside the control request.

It does not change the desired state of the stream: a running driver lands once without its pause, and goes on as
before.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

KEY = "flush.json"
# Used if each look is a request to a service.
_SHARED_POLL_SECONDS = 2.0
_TRIES = 20


class FlushRequest(msgspec.Struct, frozen=True):
    """The newest flush request.

    Attributes:
        number: Number that grows with every request of the stream.
        reason, by: Reason and author.
        at: Time, seconds since 1970.
    """

    number: int = 0
    reason: str = ""
    by: str = ""
    at: float = 0.0


_DECODER = typed_decoder(FlushRequest)


def read_flush(store: StateStore) -> FlushRequest:
    """The newest request; number 0 if there never was one. A damaged document counts as none."""
    return _decoded(store.get(KEY))


def _decoded(content: bytes | None) -> FlushRequest:
    if content is not None:
        with contextlib.suppress(*DAMAGED):
            return _DECODER.decode(content)
    return FlushRequest()


def request_flush(store: StateStore, reason: str, by: str, done: int = 0) -> int:
    """Request a flush; returns the number of the request. The caller holds the stream's control lock.

    Args:
        done: Greatest number that a driver has reported, so that a lost document repeats none.

    Raises:
        FrazilError: Other machines write requests at the same time, in every attempt.
    """
    for _ in range(_TRIES):
        found = store.get(KEY)
        number = max(_decoded(found).number, done) + 1
        if store.replace_if_unchanged(KEY, found, msgspec.json.encode(FlushRequest(number, reason, by, time.time()))):
            return number
    raise FrazilError("The flush could not be asked for: others ask at the same time.", fix="run this again")


class FlushReader:
    """Reads the newest request for one driver.

    Args:
        store: The stream's part of the state store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store: StateStore = store
        self._last: int = 0
        self._read_at: float | None = None

    def number(self) -> int:
        """Number of the newest request. An unavailable store changes nothing."""
        now = time.monotonic()
        if self._store.shared and self._read_at is not None and now - self._read_at < _SHARED_POLL_SECONDS:
            return self._last
        self._read_at = now
        with contextlib.suppress(OSError):
            self._last = read_flush(self._store).number
        return self._last
