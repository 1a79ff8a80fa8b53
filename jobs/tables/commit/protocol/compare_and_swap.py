"""Compare-and-swap loop that commits to an Iceberg table: read, decide, commit on what was read, or retry."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException

from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.errors import CatalogFailedError, HeadMovedError

MAX_REFUSALS = 50
# Retries in place. Afterwards the stream is reopened, reports that it waits, and goes on from the pending record.
FAILING_SECONDS = 10.0
_FIRST_SECONDS = 0.02
_LONGEST_SECONDS = 2.0

T = TypeVar("T")


class Backoff:
    """Growing, jittered pauses between the attempts at one commit.

    Args:
        most: Refused attempts before giving up.
        failing_seconds: How long the catalog may fail in other ways, seconds.
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        *,
        most: int = MAX_REFUSALS,
        failing_seconds: float = FAILING_SECONDS,
    ) -> None:
        self.refusals: int = 0
        self._sleep: Callable[[float], None] = sleep
        self._clock: Callable[[], float] = clock
        self._chance: Callable[[], float] = chance
        self._most: int = most
        self._failing_seconds: float = failing_seconds
        self._failing_since: float | None = None

    def again(self, problem: HeadMovedError) -> bool:
        """Wait after a refused attempt; False at once after too many, or if the catalog fails for too long."""
        self.refusals += 1
        if self.refusals >= self._most:
            return False
        if isinstance(problem, CatalogFailedError):
            if self._failing_since is None:
                self._failing_since = self._clock()
            elif self._clock() - self._failing_since > self._failing_seconds:
                return False
        else:
            self._failing_since = None
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** (self.refusals - 1))
        self._sleep(longest * (0.5 + 0.5 * self._chance()))
        return True


def compare_and_swap(
    table: str,
    attempt: Callable[[], T],
    given_up: Callable[[str], FrazilError],
    backoff: Callable[[], Backoff] = Backoff,
) -> T:
    """Attempt a commit until it lands, or until nothing is left to commit.

    Args:
        attempt: Reads the table, decides, and commits on exactly what was read. Each call reads again. Raises
            HeadMovedError if the commit was refused.
        given_up: Makes the error after too many refusals from the catalog's message.

    Returns:
        Result of the attempt that was not refused.
    """
    between = backoff()
    while True:
        try:
            return attempt()
        except HeadMovedError as moved:
            if between.again(moved):
                continue
            count = between.refusals
            said = f"the catalog refused {count} commits in a row on table {table}, the last with: {moved}"
            raise given_up(said) from moved


@contextlib.contextmanager
def conflicts_as_moved_head() -> Iterator[None]:
    """Raise the conflict of a change that PyIceberg commits by itself, such as of properties, as a moved head."""
    try:
        yield
    except CommitFailedException as refused:
        raise HeadMovedError(str(refused)) from refused
