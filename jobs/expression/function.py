"""Function of expressions: its name, what it takes, and how it is applied to typed arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.expression.nodes import Node


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions may call.

    Attributes:
        form: How it is called: `substr(text, start [, length])`.
        meaning: What it gives, in half a sentence.
        bind: From arguments, and the part of the expression as it is written, to what gives the value. Raises Mismatch.
        least, most: Numbers of arguments; None: any number.
    """

    form: str
    meaning: str
    bind: Callable[[Sequence[Node], str], Node]
    least: int
    most: int | None

    @property
    def name(self) -> str:
        """By which it is called, in whatever case."""
        return self.form.partition("(")[0]


def function(form: str, meaning: str, bind: Callable[[Sequence[Node], str], Node]) -> Function:
    """A function whose numbers of arguments are those of its form."""
    inside = form.partition("(")[2].rstrip(")")
    needed, _, optional = inside.partition("[")
    least = len([each for each in needed.split(",") if each.strip()])
    if "…" in inside:
        return Function(form, meaning, bind, least, None)
    return Function(form, meaning, bind, least, least + optional.count(",") + (bool(optional) and "," not in optional))
