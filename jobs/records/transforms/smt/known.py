"""Known single-message transforms: the names, the checked properties, and the steps of each."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.smt.former_names import present_properties
from jobs.records.transforms.transform import (
    NO_ROWS,
    Applied,
    RowFailure,
    Rows,
    Transform,
    added_columns,
)


class Properties:
    """The properties of a block beside `type`.

    Args:
        given: Names and values, as texts; former names count as the present ones.
        smt: Name of the transform in messages.
        known: All property names of the transform.

    Raises:
        TransformProblem: A name is unknown; it is placed at its key.
    """

    def __init__(self, given: Mapping[str, str], smt: str, known: Sequence[str]) -> None:
        self._given: dict[str, str] = present_properties(smt, given)
        self._smt: str = smt
        for key in self._given:
            if key in known:
                continue
            if near := difflib.get_close_matches(key, known, n=1, cutoff=0.6):
                hint = f"did you mean '{near[0]}'?"
            else:
                hint = f"it has {', '.join(known) or 'none'}"
            raise TransformProblem(f"{smt} has no property '{key}'; {hint}", (key,))

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def text(self, key: str, default: str = "") -> str:
        """Return a property as it was written."""
        return self._given.get(key, default)

    def needed(self, key: str) -> str:
        """Return a property that must exist and not be empty.

        Raises:
            TransformProblem: It is missing or empty.
        """
        found = self._given.get(key, "")
        if not found:
            raise TransformProblem(f"{self._smt} needs '{key}'", (key,) if key in self else ())
        return found

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list with commas between its entries, trimmed; empty without the property."""
        found = self._given.get(key, "")
        return tuple(each.strip() for each in found.split(",")) if found.strip() else ()

    def needed_names(self, key: str) -> tuple[str, ...]:
        """Return a list with at least one entry; raises as `needed` does."""
        self.needed(key)
        return self.names(key)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return a list of `one:other` pairs.

        Raises:
            TransformProblem: An entry is no such pair.
        """
        found: list[tuple[str, str]] = []
        for each in self.names(key):
            one, colon, other = (part.strip() for part in each.partition(":"))
            if not colon or not one or not other or ":" in other:
                raise TransformProblem(f"'{each}' in {key} is no pair such as field:name", (key,))
            found.append((one, other))
        return tuple(found)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean.

        Raises:
            TransformProblem: The value is neither true nor false.
        """
        return self.choice(key, ("true", "false"), str(default).lower(), ignore_case=True) == "true"

    def choice(self, key: str, values: Sequence[str], default: str | None = None, *, ignore_case: bool = False) -> str:
        """Return one of some words.

        Args:
            key: The property.
            values: The words.
            default: The word without the property; None if it is required.
            ignore_case: Whether it may be written in any case.

        Raises:
            TransformProblem: The value is another word.
        """
        found = self.needed(key) if default is None else self._given.get(key, default)
        known = {each.casefold() if ignore_case else each: each for each in values}
        if (found.casefold() if ignore_case else found) not in known:
            folded = {each.casefold(): each for each in values}
            near = difflib.get_close_matches(found.casefold(), folded, n=1, cutoff=0.5)
            hint = f"did you mean '{folded[near[0]]}'?" if near else f"it is one of {', '.join(values)}"
            raise TransformProblem(f"{self._smt} has no {key} '{found}'; {hint}", (key,))
        return known[found.casefold() if ignore_case else found]


Steps: TypeAlias = Callable[[Properties, Columns, bool], Sequence[Transform]]
"""Makes frazil's steps of properties, the columns before the step, and whether it is lenient."""


@dataclass(frozen=True)
class Known:
    """A transform that frazil supports by name.

    Attributes:
        type: Its class.
        properties: The names of its properties.
        steps: Makes its steps in frazil.
        asks: Parts of the frame that it may need.
        asked_with: Properties of which one must be given for it to need them; empty if it always does.
        leaves: Whether it keeps the present columns, and the columns that it adds are known without them.
    """

    type: str
    properties: tuple[str, ...]
    steps: Steps
    asks: frozenset[str] = frozenset()
    asked_with: tuple[str, ...] = ()
    leaves: bool = False

    @property
    def name(self) -> str:
        """Return the short name."""
        return self.type.rpartition(".")[2]


def quoted(name: str) -> str:
    """Return the path of a column at the top, whatever its name."""
    return "`" + name.replace("`", "``") + "`"


class InOrder(Transform):
    """Take steps, each on the rows of the one before it. Without any, rows pass.

    Args:
        steps: In their order.
    """

    name: ClassVar[str] = "in_order"

    def __init__(self, steps: Sequence[Transform]) -> None:
        self._steps: tuple[Transform, ...] = tuple(steps)

    @property
    def asks(self) -> frozenset[str]:
        return frozenset().union(*(each.asks for each in self._steps))

    @property
    def adds(self) -> frozenset[str] | None:
        """Return the names that all of them add, if each keeps the other columns."""
        return added_columns(self._steps)

    def prepare(self) -> None:
        for each in self._steps:
            each.prepare()

    def output(self, columns: Columns) -> Columns:
        for each in self._steps:
            columns = Columns.of(each.output(columns).fields)
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Take the steps; a row that one refuses or drops does not reach the next."""
        at: np.ndarray | None = None
        failures: list[RowFailure] = []
        filtered = NO_ROWS
        for each in self._steps:
            made = each.apply(rows)
            failures += [one if at is None else one._replace(row=int(at[one.row])) for one in made.failures]
            if len(made.filtered):
                filtered = np.union1d(filtered, made.filtered if at is None else at[made.filtered])
            if made.kept is not None:
                at = made.kept if at is None else at[made.kept]
            rows = made.rows
        return Applied(rows, at, sorted(failures, key=lambda one: one.row), filtered)
