"""When a service that has ended is started again, and when that is given up."""

from __future__ import annotations

from dataclasses import dataclass

MOST_FAILURES = 6
# A service that ran for so long starts the count anew.
STEADY_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class Restarts:
    """What is known of one service's ends; asks no clock and starts nothing.

    Attributes:
        failures: Ends in a row, none of them after a steady time.
        due: When it is to be started again, on the caller's clock; None while it runs.
    """

    failures: int = 0
    due: float | None = None

    def ended(self, ran_seconds: float, now: float) -> float | None:
        """The service has ended.

        Args:
            ran_seconds: For how long it ran.
            now: On the caller's clock.

        Returns:
            The pause before its next start, in seconds; None if it has ended too often.
        """
        self.failures = 1 if ran_seconds >= STEADY_SECONDS else self.failures + 1
        if self.failures >= MOST_FAILURES:
            self.due = None
            return None
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** (self.failures - 1), _LONGEST_PAUSE_SECONDS)
        self.due = now + pause
        return pause

    def take_due(self, now: float) -> bool:
        """Whether it is to be started now; says so once."""
        if self.due is None or now < self.due:
            return False
        self.due = None
        return True
