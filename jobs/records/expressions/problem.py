"""Problems of expressions: what is wrong with a text, and where in it."""

from __future__ import annotations


class ExpressionProblem(ValueError):
    """An expression that cannot be used: it is no expression, or names or types in it are wrong.

    Args:
        why: What is wrong, in a sentence without a full stop.
        text: The whole expression.
        position: Where in the text, in characters from its beginning.
    """

    def __init__(self, why: str, text: str, position: int) -> None:
        super().__init__(why, text, position)
        self.why: str = why
        self.text: str = text
        self.position: int = position

    @property
    def line(self) -> int:
        """The line of the place within the text, from 1."""
        return self.text.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int:
        """The character of the place within its line, from 1."""
        return self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1

    def __str__(self) -> str:
        """The sentence with its place, as a problem of a stream's file shows it."""
        place = f"column {self.column}" if self.line == 1 else f"line {self.line}, column {self.column}"
        return f"the expression is wrong at {place}: {self.why}"


class Mismatch(Exception):
    """Arguments that a function or an operator does not take; whoever knows the place says it.

    Args:
        why: What is needed and what was found.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: str = why
