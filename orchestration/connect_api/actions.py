"""Actions that requests ask of streams: begun in threads, and answered before they are done if they take longer."""

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
"""Begins an action on a stream, and returns what it will have come to."""

ANSWER_SECONDS = 1.5
"""For how long a request waits for its action: an error that comes at once is its answer."""


class Actions:
    """The actions of one server.

    Args:
        begin: Begins one.
        changed: Called when one has ended.
    """

    def __init__(self, begin: Begin, changed: Callable[[], None]) -> None:
        self._begin: Begin = begin
        self._changed: Callable[[], None] = changed

    async def ask(self, stream: str, action: ApiAction) -> None:
        """Begin an action, and wait for a moment. It goes on behind a request that was answered or is cancelled.

        Raises:
            FrazilError: It could not be done.
        """
        begun = self._begin(stream, action)
        begun.add_done_callback(lambda done: self._ended(stream, action, done))
        waiting = asyncio.wrap_future(begun)
        done, _ = await asyncio.wait({waiting}, timeout=ANSWER_SECONDS)
        if done:
            waiting.result()
        else:
            # Nobody takes its outcome from here any more; the log has it.
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
