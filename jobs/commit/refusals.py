"""What a catalog's error says about a commit, and how long to wait before the next attempt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from jobs.commit.errors import CatalogFailedError, HeadMovedError

# In place; then the stream is opened anew, says that it waits, and goes on from the pending record.
FAILING_SECONDS = 10.0
_FIRST_SECONDS = 0.02
_LONGEST_SECONDS = 2.0

# By name, so that nothing of a catalog that is not used has to be installed or imported. A token that has run out is
# not among them: the stream is opened anew with another.
_DENIED = {
    ("pyiceberg.exceptions", "BadRequestError"),
    ("pyiceberg.exceptions", "ForbiddenError"),
    ("pyiceberg.exceptions", "ValidationError"),
    ("pyiceberg.exceptions", "ValidationException"),
    ("builtins", "NotImplementedError"),
    ("builtins", "PermissionError"),
}
# Of AWS's catalogs, whose client has one class for all errors.
_DENIED_CODES = {"AccessDenied", "AccessDeniedException", "InvalidInputException", "ValidationException"}


def is_denied(problem: BaseException) -> bool:
    """Whether a catalog refused a commit for what it asks, or for who asks: the same answer comes to every attempt."""
    if any((kind.__module__, kind.__name__) in _DENIED for kind in type(problem).__mro__):
        return True
    response = getattr(problem, "response", None)
    error = response.get("Error") if isinstance(response, dict) else None
    return isinstance(error, dict) and error.get("Code") in _DENIED_CODES


class Pauses:
    """The pauses between the attempts at one commit, which grow, and differ by chance among those who meet.

    Args:
        sleep: Waits so many seconds.
        clock: Seconds.
        chance: A number from 0 to 1.
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.attempts: int = 0
        self._sleep: Callable[[float], None] = sleep
        self._clock: Callable[[], float] = clock
        self._chance: Callable[[], float] = chance
        self._failing_since: float | None = None

    def again(self, problem: HeadMovedError) -> bool:
        """Wait after a failed attempt; False at once if the catalog has been failing for too long."""
        self.attempts += 1
        if isinstance(problem, CatalogFailedError):
            if self._failing_since is None:
                self._failing_since = self._clock()
            elif self._clock() - self._failing_since > FAILING_SECONDS:
                return False
        else:
            self._failing_since = None
        # Doubled no further than any cap could be, or the number would be too large for a float.
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self.attempts - 1, 64))
        self._sleep(longest * (0.5 + 0.5 * self._chance()))
        return True
