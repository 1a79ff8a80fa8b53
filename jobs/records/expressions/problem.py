"""Problems of expressions, with their places in the text."""

from __future__ import annotations


class ExpressionProblem(ValueError):
    """A text is no expression, or names or types in it are wrong.

    Args:
        why: The problem, as a sentence without a full stop.
        text: The whole expression.
        position: Place in the text, in characters from its beginning.
    """

    def __init__(self, why: str, text: str, position: int) -> None:
        super().__init__(why, text, position)
        self.why: str = why
        self.text: str = text
        self.position: int = position

    @property
    def line(self) -> int:
        """Line of the place in the text, from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """Character of the place in its line, from 1."""
        return self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1

    def __str__(self) -> str:
        """Return the sentence with its place, in the form of problems in a stream's file."""
        place = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        return f"the expression is wrong at {place}: {self.why}"


class Mismatch(Exception):
    """A function or an operator does not accept its arguments; the caller adds the place.

    Args:
        why: What is needed and what was found.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: str = why
