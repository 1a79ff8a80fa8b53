"""A driver that lands less often while its table is red, by what was measured last."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jobs.spec.trigger import Every, Trigger
from jobs.state.local_store import LocalStore
from jobs.state.table_health import KEY, TableHealth, read_health, write_health
from jobs.stream.watches import HealthWatch
from tests.helpers.memory_store import InMemoryStore

SLOWER = Every.model_validate({"every": "10s", "while_red": "60s"})
NOW = 1_800_000_000.0


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("score", "age", "red"),
    [(39, 0.0, True), (40, 0.0, False), (100, 0.0, False), (0, 10_000.0, True), (0, 11_000.0, False), (0, -9e9, True)],
)
def test_what_counts_as_red(score: int, age: float, red: bool) -> None:
    assert TableHealth(score, NOW - age).red(NOW) is red


def test_a_measurement_is_read_back_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read_health(store) is None
    write_health(store, TableHealth(31, NOW))
    assert read_health(store) == TableHealth(31, NOW)
    store.put(KEY, b"{half")
    assert read_health(store) is None


def test_it_is_looked_up_each_minute_and_said_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = InMemoryStore(), Clock()
    watch = HealthWatch("payments", SLOWER, lambda: store, clock=clock, now=lambda: NOW)
    assert not watch.red()
    write_health(store, TableHealth(31, NOW))
    assert not watch.red(), "within the minute"
    clock.seconds += 60
    with caplog.at_level("INFO"):
        assert watch.red() and watch.red()
    assert "has a health of 31 of 100; it lands less often from here on" in caplog.text

    def away() -> None:
        raise OSError(errno.EIO, "no answer")

    store.before["get"] = away
    clock.seconds += 60
    assert watch.red(), "as it was known last"
    store.before.clear()
    write_health(store, TableHealth(90, NOW))
    clock.seconds += 60
    with caplog.at_level("INFO"):
        assert not watch.red()
    assert "it lands as often as ever again" in caplog.text


@pytest.mark.parametrize("trigger", [Every(), "as_fast_as_possible", "available_now"])
def test_who_does_not_ask_for_it_looks_at_nothing(trigger: Trigger) -> None:
    def never() -> InMemoryStore:
        raise AssertionError

    assert not HealthWatch("payments", trigger, never).red()
