"""Commit pool: commits to several tables at once, and what each of them answered."""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyiceberg.catalog import Catalog

from jobs.tables.commit.stamp.errors import (
    CommitDeniedError,
    FencedError,
    RolledBackError,
    StreamStopped,
    TargetRecreatedError,
)

MOST = 8
"""Commits under way together."""
OF_ONE_TABLE = (TargetRecreatedError, RolledBackError, CommitDeniedError)
"""What stops the stream for one table, and says nothing of another."""
_MOST_TOLD = 5

T = TypeVar("T")


def most_commits(catalog: Catalog | None) -> int:
    """How many commits a catalog is asked for together.

    PyIceberg's client of Hive has one connection for all. SQLite answers from this process, so threads only take turns:
    eight of them made 300 commits a tenth slower than one (`python -m bench.routes`).
    """
    engine = getattr(catalog, "engine", None)
    local = engine is not None and engine.dialect.name == "sqlite"
    return 1 if local or type(catalog).__module__ == "pyiceberg.catalog.hive" else MOST


def commit_each(names: Sequence[str], commit: Callable[[str], T], most: int = MOST) -> dict[str, T]:
    """Commit to each of several tables, some of them together; returns the answers, by table.

    All commits that were begun have answered before this returns or raises. A table that stops by itself keeps no other
    from its commit; after any other error none is begun.

    Args:
        commit: Commits to one; called in threads of the pool.

    Raises:
        BaseException: The gravest error: a takeover, then a stop, then any other. Stops of tables are told together.
    """
    if len(names) <= 1 or most <= 1:
        return _one_by_one(names, commit)
    failed = threading.Event()

    def begin(name: str) -> T | None:
        if failed.is_set():
            return None
        try:
            return commit(name)
        except OF_ONE_TABLE:
            raise
        except BaseException:
            failed.set()
            raise

    pool = ThreadPoolExecutor(min(most, len(names)), "commit")
    try:
        futures = {name: pool.submit(contextvars.copy_context().run, begin, name) for name in names}
        _await(futures)
    finally:
        # Also if this thread is told to end: what was begun is answered first.
        failed.set()
        pool.shutdown(wait=True, cancel_futures=True)
    errors = [problem for each in futures.values() if (problem := each.exception()) is not None]
    if errors:
        raise _told_together(errors)
    return {name: each.result() for name, each in futures.items()}  # pyright: ignore[reportReturnType]


def _one_by_one(names: Sequence[str], commit: Callable[[str], T]) -> dict[str, T]:
    answers, stops = dict[str, T](), list[StreamStopped]()
    for name in names:
        try:
            answers[name] = commit(name)
        except OF_ONE_TABLE as stop:
            stops.append(stop)
        except BaseException as problem:
            raise _told_together([*stops, problem]) from problem.__cause__
    if stops:
        raise _told_together(stops)
    return answers


def _told_together(errors: Sequence[BaseException]) -> BaseException:
    """The gravest error; of tables that stop the stream each, the first with what the others say."""
    gravest = min(errors, key=_gravity)
    others = [each.message for each in errors if isinstance(each, OF_ONE_TABLE) and each is not gravest]
    if not others or not isinstance(gravest, OF_ONE_TABLE):
        return gravest
    more = f" And {len(others) - _MOST_TOLD} more tables." if len(others) > _MOST_TOLD else ""
    said = " ".join(f"{each.rstrip('.')}." for each in [gravest.message, *others[:_MOST_TOLD]])
    told = copy.copy(gravest)
    told.message, told.args = said + more, (said + more,)
    told.__cause__ = gravest
    return told


def _await(futures: Mapping[str, Future[T]]) -> None:
    left = set(futures.values())
    while left:
        # A signal is handled by this thread between two of them, and not only behind the last.
        _, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)


def _gravity(problem: BaseException) -> int:
    if not isinstance(problem, Exception):
        return 0
    return 1 if isinstance(problem, FencedError) else 2 if isinstance(problem, StreamStopped) else 3
