"""Watch of a table's health: whether its stream lands less often for now, as `trigger.while_red` says."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from jobs.spec.trigger import Trigger, while_red
from jobs.state.store import StateStore
from jobs.state.table_health import read_health

log = logging.getLogger(__name__)

_EVERY_SECONDS = 60.0


class HealthWatch:
    """Says of one query whether its stream's own table is red, by the newest measurement, looked up each minute.

    Args:
        stream, trigger: The stream's.
        store: Gives the table's part of the state store; asked only where the file says so.
        clock: The monotonic clock; `now`: seconds since 1970.
    """

    def __init__(
        self,
        stream: str,
        trigger: Trigger,
        store: Callable[[], StateStore],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream: str = stream
        self._slower: bool = while_red(trigger) is not None
        self._store: Callable[[], StateStore] = store
        self._clock: Callable[[], float] = clock
        self._now: Callable[[], float] = now
        self._looked_at: float | None = None
        self._red: bool = False

    def red(self) -> bool:
        """Whether it is, and the file asks for it. A store that cannot be read changes nothing."""
        due = self._looked_at is None or self._clock() - self._looked_at >= _EVERY_SECONDS
        if self._slower and due:
            self._looked_at = self._clock()
            with contextlib.suppress(OSError):
                self._look()
        return self._red

    def _look(self) -> None:
        before, health = self._red, read_health(self._store())
        self._red = health is not None and health.red(self._now())
        if self._red != before and health is not None:
            said = "lands less often from here on" if self._red else "lands as often as ever again"
            log.info("stream %s: its table has a health of %d of 100; it %s", self._stream, health.score, said)
