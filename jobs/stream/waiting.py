"""What the batch at hand waits for, for whoever asks how the stream does."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

# What answers sooner is merely slow.
LONG_SECONDS = 10.0


class Waiting:
    """What a batch waits for; told by the thread that lands it, asked by the driver's own.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Callable[[], float] = clock
        self._guard: threading.Lock = threading.Lock()
        self._asked: tuple[str, float, datetime] | None = None
        self._trouble: str | None = None

    @contextlib.contextmanager
    def on(self, whom: str) -> Iterator[None]:
        """Within the block somebody is asked who may take long to answer.

        Args:
            whom: Who, and what for.
        """
        with self._guard:
            self._asked = whom, self._clock(), datetime.now(UTC)
        try:
            yield
        finally:
            with self._guard:
                self._asked = None

    def tried(self, trouble: str | None) -> None:
        """Something failed and is tried again; None once it has worked."""
        with self._guard:
            self._trouble = trouble

    def told(self) -> str | None:
        """What is waited for, as a sentence without values and secrets; None if nothing is, or not for long yet."""
        with self._guard:
            if self._asked is not None and self._clock() - self._asked[1] >= LONG_SECONDS:
                whom, _, since = self._asked
                return f"{whom} has not answered since {since:%H:%M:%S} UTC"
            return self._trouble
