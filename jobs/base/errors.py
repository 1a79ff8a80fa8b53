"""Errors as frazil shows them to a person: what is wrong, and what to do next."""

from __future__ import annotations


class FrazilError(Exception):
    """Problem that a person reads: what it is, where, and the next command to type; never with a stack trace.

    Args:
        message: One or more sentences that name the thing and the place.
        fix: The next command to type, or the line to change.
    """

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message: str = message
        self.fix: str | None = fix

    def __str__(self) -> str:
        return self.message if self.fix is None else f"{self.message}\n  Next: {self.fix}"


def first_line(said: BaseException | str, otherwise: str | None = None) -> str:
    """Return the first non-empty line: below it SQLAlchemy puts statements and parameters, and Spark stack traces.

    Args:
        said: An exception, or its text.
        otherwise: Result for an empty text; by default the name of the exception's class.
    """
    fallback = type(said).__name__ if otherwise is None else otherwise
    return next((line.strip() for line in str(said).splitlines() if line.strip()), fallback)


class StreamStopped(FrazilError):
    """A stream refuses to go on by itself, because going on would lose, duplicate or mix records.

    Safe: The tables hold what was committed, and the position has not moved.
    Next: the command that the message names
    """
