"""Commit pool: commits to several tables at the same time, and the answer of each."""

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
    SinkRestartedError,
    StreamStopped,
    TargetRecreatedError,
)
from jobs.tables.write.table_creation import is_hive

MOST = 8
"""Most commits at the same time."""
OF_ONE_TABLE = (TargetRecreatedError, RolledBackError, CommitDeniedError, SinkRestartedError)
"""Errors that stop the stream because of one table, and do not concern another."""
_MOST_TOLD = 5

T = TypeVar("T")


def most_commits(catalog: Catalog | None) -> int:
    """Most commits that a catalog gets at the same time.

    PyIceberg's Hive client has one connection for all. SQLite answers within this process, so threads only take turns:
    eight threads made 300 commits a tenth slower than one (`python -m bench.routes`).
    """
    engine = getattr(catalog, "engine", None)
    local = engine is not None and engine.dialect.name == "sqlite"
    return 1 if local or is_hive(catalog) else MOST


def commit_each(names: Sequence[str], commit: Callable[[str], T], most: int = MOST) -> dict[str, T]:
    """Commit to several tables, some at the same time; returns the answers by table.

    All commits that were begun have answered before this returns or raises. If one table stops the stream, the others
    are still committed. After any other error no commit begins.

    Args:
        commit: Commits to one table; called in threads of the pool.

    Raises:
        BaseException: The gravest error: a takeover, then a stop, then any other. Stops of tables are reported
            together.
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
        # Commits that were begun are answered first, even if this thread is to end.
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
    """The gravest error; if several tables stop the stream, the first one's with the others' messages."""
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
        # The timeout lets this thread handle signals before the last commit has answered.
        _, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)


def _gravity(problem: BaseException) -> int:
    if not isinstance(problem, Exception):
        return 0
    return 1 if isinstance(problem, FencedError) else 2 if isinstance(problem, StreamStopped) else 3
