"""Deadline for calls into clients that have none of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from jobs.base.errors import FrazilError

T = TypeVar("T")


class DeadlineError(FrazilError):
    """A service did not answer in time.

    Safe: Nothing was changed.
    Next: check the service that the message names; then repeat the command
    """


def within(seconds: float, what: str, question: Callable[[], T]) -> T:
    """Return the answer to `question`. It runs in its own thread, which is abandoned if the answer comes too late.

    Args:
        seconds: How long to wait.
        what: Name of the service, for the message.
        question: Called once.

    Raises:
        DeadlineError: No answer came in time.
    """
    answers: list[T] = []
    problems: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(question())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=ask, name=f"ask {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not answers:
        raise DeadlineError(f"{what} did not answer within {seconds:.0f} s")
    return answers[0]
