"""Signals deferred to the end of a block: Ctrl-C and SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block; the second signal of a number acts at once.

    The start of Spark needs it. If PySpark is interrupted while its JVM starts, it forgets the JVM and removes the file
    that the JVM is about to write; that JVM never ends. Threads other than the main one get no signals, so the block
    changes nothing there. Handlers that are installed within the block are undone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    arrived: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number in arrived:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)
        arrived.append(number)

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    with contextlib.ExitStack() as restored:
        # Both handlers are restored even if a signal arrives between the two.
        for number, handler in before.items():
            restored.callback(signal.signal, number, handler)
        yield
    for number in arrived:
        signal.raise_signal(number)
