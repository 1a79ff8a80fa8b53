"""Interrupts of a command (Ctrl-C, SIGTERM, a closed terminal): deferred where they would leave something half done."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends a command as Ctrl-C does, with its clean-up."""


class Interrupts:
    """Turns the signals that end a command into exceptions, except where one would leave something behind.

    As a context manager it puts the handlers back on leaving. Only for the main thread.
    """

    def __init__(self) -> None:
        self._deferring: int = 0
        self._waiting: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer interrupts: a signal that arrives within the block takes effect at its end."""
        self._deferring += 1
        try:
            yield
        finally:
            self._deferring -= 1
        if not self._deferring and self._waiting is not None:
            number, self._waiting = self._waiting, None
            _raise(number)

    def ignore(self) -> None:
        """Ignore interrupts from here on, as only the bounded clean-up is left."""
        self._deferring += 1

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self._deferring:
            self._waiting = signal.Signals(number)
        else:
            _raise(signal.Signals(number))


def _raise(number: signal.Signals) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated
