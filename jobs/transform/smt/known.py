"""What is known of a single-message transform: its names, its properties, and the steps that it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jobs.transform.columns import Columns
from jobs.transform.smt.properties import Properties
from jobs.transform.transform import Transform

Steps: TypeAlias = Callable[[Properties, Columns, bool], Sequence[Transform]]
"""Properties, the columns before the step, and whether it is lenient, to frazil's steps."""


@dataclass(frozen=True)
class Known:
    """A transform that frazil takes by name.

    Attributes:
        type: Its class.
        properties: The names of its properties.
        steps: What it is in frazil.
        asks: Parts of the frame that it may need.
        asked_with: The properties without any of which it needs none of them; empty: it always does.
        leaves: Whether it leaves the columns that there are, and what it adds is known without them.
    """

    type: str
    properties: tuple[str, ...]
    steps: Steps
    asks: frozenset[str] = frozenset()
    asked_with: tuple[str, ...] = ()
    leaves: bool = False

    @property
    def name(self) -> str:
        """The short name."""
        return self.type.rpartition(".")[2]


def quoted(name: str) -> str:
    """The path of a column at the top, whatever its name."""
    return "`" + name.replace("`", "``") + "`"
