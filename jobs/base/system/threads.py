"""Threads that go on with what their starter was at, so that a log line of theirs is known to be of its stream."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from contextvars import ContextVar

CURRENT_STREAM: ContextVar[str | None] = ContextVar("stream", default=None)
"""The stream that a thread works for, in a process that carries several; None: the process itself."""


def background_thread(target: Callable[..., object], name: str, *args: object) -> threading.Thread:
    """A daemon thread, not started yet, in a copy of this thread's context.

    Args:
        target: What it does, with `args`.
        name: What debuggers call it.
    """
    return threading.Thread(target=contextvars.copy_context().run, args=(target, *args), name=name, daemon=True)
