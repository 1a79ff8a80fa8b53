"""Commits to several tables at once: all answer before anything is decided, whatever one of them says."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.streaming.driver.context.commit_pool import MOST, commit_each, most_commits
from jobs.tables.commit.stamp.errors import (
    CommitDeniedError,
    CommitUnknownError,
    FencedError,
    GapError,
    RolledBackError,
    StreamStopped,
    TargetRecreatedError,
)

NAMES = [f"a.t{number}" for number in range(20)]
SECONDS = 30.0


def test_as_many_as_may_be_are_under_way_together_and_no_more() -> None:
    guard, full, now, most = threading.Lock(), threading.Barrier(4), 0, 0

    def commit(name: str) -> str:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)
        # Nobody gets further unless four are here.
        full.wait(SECONDS)
        with guard:
            now -= 1
        return name.upper()

    assert commit_each(NAMES, commit, 4) == {name: name.upper() for name in NAMES}
    assert most == 4


@pytest.mark.parametrize("most", [1, MOST])
def test_one_table_or_one_at_a_time_needs_no_thread(most: int) -> None:
    def commit(name: str) -> threading.Thread:
        return threading.current_thread()

    names = NAMES if most == 1 else NAMES[:1]
    assert set(commit_each(names, commit, most).values()) == {threading.current_thread()}


def test_after_an_error_what_was_begun_answers_and_nothing_else_is_begun() -> None:
    begun, ended, failed = list[str](), list[str](), threading.Event()
    both = threading.Barrier(2)

    def commit(name: str) -> None:
        begun.append(name)
        both.wait(SECONDS)
        if name == NAMES[0]:
            failed.set()
            raise CommitUnknownError("the catalog did not say")
        assert failed.wait(SECONDS)
        ended.append(name)

    with pytest.raises(CommitUnknownError):
        commit_each(NAMES, commit, 2)
    assert sorted(begun) == NAMES[:2] and ended == NAMES[1:2]


@pytest.mark.parametrize("most", [1, 3, MOST])
@pytest.mark.parametrize("alone", [TargetRecreatedError, RolledBackError, CommitDeniedError])
def test_a_table_that_stops_by_itself_keeps_no_other_from_its_commit(alone: type[StreamStopped], most: int) -> None:
    landed: list[str] = []

    def commit(name: str) -> None:
        if name in NAMES[:7]:
            raise alone(f"{name} stops.", fix=f"mend {name}")
        landed.append(name)

    with pytest.raises(alone) as stopped:
        commit_each(NAMES, commit, most)
    assert sorted(landed) == sorted(NAMES[7:])
    said = stopped.value
    assert sum(name in said.message.split() for name in NAMES[:7]) == 6 and "And 1 more tables." in said.message
    assert said.fix in {f"mend {name}" for name in NAMES[:7]}


@pytest.mark.parametrize("most", [1, MOST])
def test_a_graver_error_is_told_before_a_table_that_stops_by_itself(most: int) -> None:
    def commit(name: str) -> None:
        if name == NAMES[0]:
            raise CommitDeniedError("refused")
        if name == NAMES[1]:
            raise FencedError("s", 1, 2, name)

    with pytest.raises(FencedError):
        commit_each(NAMES[:3], commit, most)


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ([CommitUnknownError("c"), FencedError("s", 1, 2, "a.t"), GapError("g")], FencedError),
        ([CommitUnknownError("c"), GapError("g"), GapError("h")], GapError),
        ([GapError("g"), KeyboardInterrupt(), FencedError("s", 1, 2, "a.t")], KeyboardInterrupt),
    ],
)
def test_the_gravest_of_several_errors_is_told(raised: list[BaseException], told: type[BaseException]) -> None:
    every = threading.Barrier(len(raised))
    errors = dict(zip(NAMES, raised, strict=False))

    def commit(name: str) -> None:
        every.wait(SECONDS)
        raise errors[name]

    with pytest.raises(told):
        commit_each(NAMES[: len(raised)], commit, len(raised))


def test_a_catalog_with_one_connection_is_asked_for_one_commit_at_a_time() -> None:
    hive: Any = type("HiveCatalog", (), {"__module__": "pyiceberg.catalog.hive"})()
    lite, other = (SimpleNamespace(engine=SimpleNamespace(dialect=SimpleNamespace(name=n))) for n in ("sqlite", "pg"))
    every: list[Any] = [hive, lite, other, SimpleNamespace(), None]
    assert [most_commits(each) for each in every] == [1, 1, MOST, MOST, MOST]
