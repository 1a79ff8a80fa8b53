"""Hiding of values: what an outcome must not show, because the stream's mask of dead letters hides the column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.deadletter.masking import MARK
from jobs.spec.mask import path_parts


class Hidden:
    """The columns whose values are not shown.

    Args:
        paths: As `Mask.paths` has them. A column is hidden where a path is the column, lies around it or within it.
    """

    def __init__(self, paths: Iterable[Sequence[str]]) -> None:
        self._paths: list[tuple[str, ...]] = [tuple(part.casefold() for part in path) for path in paths]

    def hides(self, column: str) -> bool:
        """Whether values of the column are not shown."""
        parts = tuple(part.casefold() for part in (column, *path_parts(column))[1:])
        whole = (column.casefold(),)
        return any(
            path[: len(each)] == each[: len(path)] for path in self._paths for each in (parts, whole)
        )  # fmt: skip

    def any_of(self, columns: Iterable[str]) -> bool:
        """Whether one of the columns is hidden."""
        return any(map(self.hides, columns))

    def shown(self, column: str, value: str) -> str:
        """The value, or a mark in its place."""
        return MARK if self.hides(column) else value
