"""Background threads that inherit their starter's context, so that their log lines name its stream."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextvars import ContextVar

CURRENT_STREAM: ContextVar[str | None] = ContextVar("stream", default=None)
"""Stream that a thread works for, in a process with several streams; None for the process itself."""


def background_thread(target: Callable[..., object], name: str, *args: object) -> threading.Thread:
    """Return a daemon thread, not started yet, with a copy of this thread's context.

    Args:
        target: Function that the thread calls with `args`.
        name: Name of the thread, for debuggers.
    """
    return threading.Thread(target=contextvars.copy_context().run, args=(target, *args), name=name, daemon=True)
