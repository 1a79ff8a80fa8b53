"""Rounds of two sides by turns, and what their pairs say: a machine that is busy is busy for both of a pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

_Side = TypeVar("_Side", bound=str)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A figure of two sides, by pairs of rounds that followed one another.

    Attributes:
        first: The values of one side, one for each pair.
        second: The values of the other side.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """The second value over the first, of each pair."""
        return tuple(second / first for first, second in zip(self.first, self.second, strict=True))

    @property
    def differences(self) -> tuple[float, ...]:
        """The second value less the first, of each pair."""
        return tuple(second - first for first, second in zip(self.first, self.second, strict=True))


def turns(sides: tuple[_Side, _Side], rounds: int) -> Iterator[tuple[int, _Side]]:
    """The rounds in their order: each pair begins with the side that the one before ended with.

    Args:
        sides: The two.
        rounds: Pairs.

    Returns:
        The number of the pair, and the side that runs next.
    """
    for number in range(rounds):
        for side in sides if number % 2 == 0 else sides[::-1]:
            yield number, side


def pairs_of(facts: Sequence[dict[str, Any]], sides: tuple[str, str], figure: str) -> Pairs:
    """A figure by pairs of rounds; each fact says its `side` and its `round`.

    Raises:
        KeyError: A pair lacks one of its rounds, or the figure.
    """
    found = {(each["round"], each["side"]): float(each[figure]) for each in facts}
    numbers = sorted({number for number, _ in found})
    first, second = sides
    return Pairs(tuple(found[number, first] for number in numbers), tuple(found[number, second] for number in numbers))


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """The median, and the least and the greatest, as words."""
    median, least, greatest = (format(each, form) for each in (statistics.median(values), min(values), max(values)))
    return f"{median} ({least} to {greatest})"
