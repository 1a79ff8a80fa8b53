"""Actions on streams that requests start: they run in threads, and a slow one outlives its request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, TypeAlias

from jobs.base.errors import FrazilError
from jobs.streaming.supervision.control.lifecycle import ActionResult

log = logging.getLogger(__name__)

ApiAction = Literal["pause", "resume", "stop", "restart"]
Begin: TypeAlias = Callable[[str, ApiAction], "Future[ActionResult]"]
"""Starts an action on a stream, and returns the future of its result."""

ANSWER_SECONDS = 1.5
"""Seconds that a request waits for its action, so that an early error becomes the response."""


class Actions:
    """Actions of one server.

    Args:
        begin: Function that starts an action.
        changed: Callback after each action's end.
    """

    def __init__(self, begin: Begin, changed: Callable[[], None]) -> None:
        self._begin: Begin = begin
        self._changed: Callable[[], None] = changed

    async def ask(self, stream: str, action: ApiAction) -> None:
        """Start an action, and wait for it briefly. It goes on after the request is answered or cancelled.

        Raises:
            FrazilError: The action failed.
        """
        begun = self._begin(stream, action)
        begun.add_done_callback(lambda done: self._ended(stream, action, done))
        waiting = asyncio.wrap_future(begun)
        done, _ = await asyncio.wait({waiting}, timeout=ANSWER_SECONDS)
        if done:
            waiting.result()
        else:
            # The request is answered, so `_ended` only logs the outcome.
            waiting.add_done_callback(lambda late: late.cancelled() or late.exception())

    def _ended(self, stream: str, action: ApiAction, done: Future[ActionResult]) -> None:
        self._changed()
        problem = done.exception()
        if problem is None:
            log.info("%s %s: %s", action, stream, done.result().sentence)
        elif isinstance(problem, FrazilError):
            log.warning("%s %s: %s", action, stream, problem)
        else:
            log.error("%s %s failed", action, stream, exc_info=problem)
