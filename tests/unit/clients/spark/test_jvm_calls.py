"""Calls that a signal may end although it must not break into them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jobs.clients.spark.jvm_calls import interruptible, jvm_error_text
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings


class Ended(BaseException):
    """What the signal's handler raises."""


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def raised(number: int, frame: FrameType | None) -> None:
        raise Ended

    before = signal.signal(signal.SIGUSR1, raised)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_it_gives_what_the_call_gives_or_raises() -> None:
    assert interruptible(lambda: threading.current_thread() is threading.main_thread(), lambda: None) is False
    with pytest.raises(ValueError, match="no such table"):
        interruptible(lambda: _raise(ValueError("no such table")), lambda: pytest.fail("nothing is to be cancelled"))


def _raise(problem: Exception) -> None:
    raise problem


def test_a_signal_ends_the_wait_and_cancels_the_call_without_breaking_into_it() -> None:
    cancelled, said = threading.Event(), list[str]()

    def call() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        said.append("undisturbed" if cancelled.wait(120) else "never cancelled")

    with pytest.raises(Ended):
        interruptible(call, cancelled.set)
    assert said == ["undisturbed"]


def test_a_call_that_cannot_be_cancelled_is_left_behind() -> None:
    release = threading.Event()

    def call() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        release.wait(120)

    with pytest.raises(Ended):
        interruptible(call, lambda: _raise(RuntimeError("the JVM is gone")), grace_seconds=0.05)
    release.set()


def test_secrets_are_taken_out_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASS", "hunter2")
    properties: Any = {"type": "sql", "uri": "postgresql://me:${env:PGPASS}@db/lake"}
    settings = Settings.embedded(tmp_path).model_copy(
        update={"catalog": CatalogSettings.model_validate({"properties": properties})}
    )
    told = jvm_error_text(settings, RuntimeError("cannot connect to postgresql://me:hunter2@db/lake\n\tat somewhere"))
    assert "hunter2" not in told and "RuntimeError: cannot connect" in told and "somewhere" not in told
