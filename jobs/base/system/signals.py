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
    """Within the block Ctrl-C and SIGTERM wait for its end; the second one of a kind does not.

    For the start of Spark: PySpark, interrupted while its JVM starts, forgets it and takes away the file that the JVM
    is about to write, after which that JVM stays for ever. Does nothing in threads other than the main one, which get
    no signals. Handlers that are installed within the block are undone.
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
        # Each is put back even if the other one's own signal comes between the two.
        for number, handler in before.items():
            restored.callback(signal.signal, number, handler)
        yield
    for number in arrived:
        signal.raise_signal(number)
