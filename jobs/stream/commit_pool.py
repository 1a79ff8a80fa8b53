"""Commit pool: commits to several tables at once, and what each of them answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyiceberg.catalog import Catalog

from jobs.commit.errors import FencedError, StreamStopped

MOST = 8
"""Commits under way together."""

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
    """Commit to each of several tables, some of them together.

    Nothing is decided while a commit is under way: also after an error all that were begun have answered before this
    returns. After an error no other is begun.

    Args:
        names: Of the tables, in the order in which commits begin.
        commit: Commits to one; called in threads of the pool.
        most: How many are under way together.

    Returns:
        The answers, by table.

    Raises:
        BaseException: The gravest error of a commit: that the stream was taken over, or has to stop, before any other.
    """
    if len(names) <= 1 or most <= 1:
        return {name: commit(name) for name in names}
    failed = threading.Event()

    def begin(name: str) -> T | None:
        if failed.is_set():
            return None
        try:
            return commit(name)
        except BaseException:
            failed.set()
            raise

    pool = ThreadPoolExecutor(min(most, len(names)), "commit")
    try:
        futures = {name: pool.submit(begin, name) for name in names}
        _await(futures)
    finally:
        # Also if this thread is told to end: what was begun is answered first.
        failed.set()
        pool.shutdown(wait=True, cancel_futures=True)
    errors = [problem for each in futures.values() if (problem := each.exception()) is not None]
    if errors:
        raise min(errors, key=_gravity)
    return {name: each.result() for name, each in futures.items()}  # pyright: ignore[reportReturnType]


def _await(futures: Mapping[str, Future[T]]) -> None:
    left = set(futures.values())
    while left:
        # A signal is handled by this thread between two of them, and not only behind the last.
        _, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)


def _gravity(problem: BaseException) -> int:
    if not isinstance(problem, Exception):
        return 0
    return 1 if isinstance(problem, FencedError) else 2 if isinstance(problem, StreamStopped) else 3
