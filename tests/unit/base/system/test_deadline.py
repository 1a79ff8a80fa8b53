"""A deadline for what may wait for ever."""

from __future__ import annotations

import threading

import pytest

from jobs.base.system.deadline import DeadlineError, within


def test_nothing_waits_longer_than_its_deadline() -> None:
    never = threading.Event()
    with pytest.raises(DeadlineError, match=r"the silent one did not answer within 0 s"):
        within(0.2, "the silent one", lambda: never.wait(600))
    never.set()
    assert within(5, "the quick one", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, "the broken one", lambda: 1 / 0)
