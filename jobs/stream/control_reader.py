"""What a driver is asked to do, as it finds out between batches and while it waits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from jobs.errors import FrazilError
from jobs.state.store import StateStore
from jobs.supervise.control import Control, read_control

log = logging.getLogger(__name__)
Asked = Literal["run", "pause", "end"]
_POLL_SECONDS = 0.25


class Wishes:
    """Reads `control.json` for one driver.

    Args:
        store: The stream's part of the state store.
        attempt: The driver's own.

    Attributes:
        signalled: SIGTERM came.
        superseded: Says whether a later attempt beats.
    """

    def __init__(self, store: StateStore, attempt: int) -> None:
        self._store: StateStore = store
        self._attempt: int = attempt
        self._last: Control = Control()
        self._told: str | None = None
        self.signalled: bool = False
        self.superseded: Callable[[], bool] = lambda: False

    def now(self) -> Asked:
        """What is asked now. A control file that cannot be read changes nothing."""
        if self.signalled or self.superseded():
            return "end"
        try:
            self._last = read_control(self._store)
            self._told = None
        except (FrazilError, OSError) as problem:
            if self._told != str(problem):
                self._told = str(problem)
                log.warning("%s", problem)
        if self._last.wish == "stopped" or self._last.end_attempt >= self._attempt:
            return "end"
        return "pause" if self._last.wish == "paused" else "run"

    def wait_while(self, asked: Asked, seconds: float = float("inf")) -> None:
        """Wait until something else is asked, or so long."""
        deadline = time.monotonic() + seconds
        while self.now() == asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_SECONDS, left))
