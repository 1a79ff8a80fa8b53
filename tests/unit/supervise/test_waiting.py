"""Waiting with a deadline: what is done again whenever a condition holds comes to an end."""

from __future__ import annotations

import time

from jobs.supervise.waiting import wait_until_deadline


def test_what_holds_each_time_ends_with_the_deadline() -> None:
    deadline, times = time.monotonic() + 0.05, 0
    while wait_until_deadline(lambda: True, deadline):
        times += 1
    assert times > 0 and time.monotonic() >= deadline


def test_what_never_holds_ends_too() -> None:
    assert not wait_until_deadline(lambda: False, time.monotonic() + 0.05, 0.01)
    assert not wait_until_deadline(lambda: True, time.monotonic())
