"""Background query: one that may take longer than a tick runs in a thread, and a later tick picks up its answer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_KEPT_ANSWERS = 100
# A thread that has not come back by then counts as lost, and no longer blocks others.
GIVE_UP_SECONDS = 900.0


class BackgroundQuery:
    """Answers one question at a time. Whoever does not get an answer in time asks again later, with the same key."""

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Any, BaseException | None]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._key: Hashable = None
        self._began: float = 0.0

    def ask(self, key: Hashable, seconds: float, question: Callable[[], T]) -> T | None:
        """The answer; None if it has not come within so many seconds, or another question is being answered.

        An answer is given once: who asks the same again gets a new one.

        Args:
            key: Identifies the question and all that its answer depends on.
            question: Must not answer None; what it raises is raised here.
        """
        with self._lock:
            thread = self._thread if self._answered_now() else None
            if key not in self._answers and thread is None:
                thread = threading.Thread(target=self._answer, args=(key, question), name="frazil letters", daemon=True)
                self._thread, self._key, self._began = thread, key, time.monotonic()
                thread.start()
            elif key in self._answers or self._key != key:
                thread = None
        if thread is not None:
            thread.join(max(0.0, seconds))
        with self._lock:
            if key not in self._answers:
                return None
            answer, problem = self._answers.pop(key)
        if problem is not None:
            raise problem
        return answer

    def _answered_now(self) -> bool:
        alive = self._thread is not None and self._thread.is_alive()
        return alive and time.monotonic() - self._began < GIVE_UP_SECONDS

    def _answer(self, key: Hashable, question: Callable[[], Any]) -> None:
        answer: Any = None
        problem: BaseException | None = None
        try:
            answer = question()
        except BaseException as raised:
            problem = raised
        with self._lock:
            self._answers[key] = answer, problem
            while len(self._answers) > _KEPT_ANSWERS:
                self._answers.popitem(last=False)
