"""Signals wait for the end of a block that must not be interrupted."""

from __future__ import annotations

import signal
import threading

import pytest

from jobs.base.system.signals import deferred_signals


class Ended(BaseException):
    """Stands for what an owner's own handler raises."""


@pytest.fixture(autouse=True)
def _handlers() -> object:
    def handler(number: int, frame: object) -> None:
        raise Ended

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, old in before.items():
        signal.signal(number, old)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_at_the_end(number: signal.Signals) -> None:
    reached: list[str] = []

    def block() -> None:
        with deferred_signals():
            signal.raise_signal(number)
            reached.append("end")

    with pytest.raises(Ended):
        block()
    assert reached == ["end"]


def test_the_second_one_does_not_wait() -> None:
    reached: list[str] = []

    def block() -> None:
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            reached.append("not here")

    with pytest.raises(Ended):
        block()
    assert reached == []


def test_handlers_are_put_back_whatever_the_block_installs() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_signals():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_have_no_signals_to_defer() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with deferred_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
