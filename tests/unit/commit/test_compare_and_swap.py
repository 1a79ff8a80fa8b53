"""The one loop of all commits: what it reads again, how long it waits, and when it gives up."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import partial

import pytest
from pyiceberg.exceptions import CommitFailedException

from jobs.commit.compare_and_swap import MAX_REFUSALS, Backoff, compare_and_swap, conflicts_as_moved_head
from jobs.commit.errors import CatalogFailedError, CommitDeniedError, CommitRefusedError, HeadMovedError

AT_ONCE = partial(Backoff, lambda seconds: None, lambda: 0.0, lambda: 0.0)


class Attempts:
    """Attempts that are answered one after another, and at last with the same for ever."""

    def __init__(self, *answers: Exception | str) -> None:
        self.count = 0
        self._answers: Iterator[Exception | str] = itertools.chain(answers, itertools.repeat(answers[-1]))

    def __call__(self) -> str:
        self.count += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def swap(attempts: Attempts, backoff: partial[Backoff] = AT_ONCE) -> str:
    return compare_and_swap("orders.payments", attempts, lambda said: CommitRefusedError(f"stream s: {said}"), backoff)


def test_an_attempt_that_a_moved_head_refused_is_made_again() -> None:
    attempts = Attempts(HeadMovedError("moved"), CatalogFailedError("503"), "landed")
    assert swap(attempts) == "landed"
    assert attempts.count == 3


def test_after_fifty_refusals_it_gives_up_with_the_last_word() -> None:
    attempts = Attempts(HeadMovedError("first"), HeadMovedError("last"))
    said = r"stream s: the catalog refused 50 commits in a row on table orders\.payments, the last with: last"
    with pytest.raises(CommitRefusedError, match=said) as refused:
        swap(attempts)
    assert attempts.count == MAX_REFUSALS == 50
    assert isinstance(refused.value.__cause__, HeadMovedError)


def test_what_is_no_moved_head_is_not_tried_again() -> None:
    attempts = Attempts(CommitDeniedError("403"))
    with pytest.raises(CommitDeniedError):
        swap(attempts)
    assert attempts.count == 1


def test_a_conflict_of_a_change_by_pyiceberg_is_a_moved_head() -> None:
    with pytest.raises(HeadMovedError, match="409"), conflicts_as_moved_head():
        raise CommitFailedException("409")


def test_backoff_grow_and_differ() -> None:
    chance, slept = random.Random(7), []
    backoff = Backoff(slept.append, lambda: 0.0, chance.random)
    for _ in range(30):
        assert backoff.again(HeadMovedError("moved"))
    assert 0.01 <= slept[0] <= 0.02 and 1.0 <= slept[-1] <= 2.0
    assert all(before < 2 * after * 1.01 for before, after in itertools.pairwise(slept))
    assert len(set(slept)) == 30
    assert 20 < sum(slept) < 60


def test_true_conflicts_do_not_count_as_a_catalog_that_fails() -> None:
    now = [0.0]
    backoff = Backoff(lambda seconds: None, lambda: now[0], lambda: 0.0)
    assert backoff.again(CatalogFailedError("503"))
    now[0] = 9.0
    assert backoff.again(HeadMovedError("moved"))
    now[0] = 18.0
    assert backoff.again(CatalogFailedError("503"))
    now[0] = 29.0
    assert not backoff.again(CatalogFailedError("503"))
