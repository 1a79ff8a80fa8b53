"""Places of values within the rows of a block: their rows, their JSON paths, and whether a value exists there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of values in rows.

    Attributes:
        rows: The row of each value, ascending.
        inside: Mask of the values inside something that is not null; None if all are.
        path: The JSON path of one value.
        paths: The JSON path of all values together.
    """

    rows: Indices
    inside: Mask | None
    path: Callable[[int], str]
    paths: str

    def of(self, name: str) -> Place:
        """Return the place of a field of the structs here."""
        return Place(self.rows, self.inside, lambda index: f"{self.path(index)}.{name}", f"{self.paths}.{name}")

    def within(self, values: pa.Array) -> Mask | None:
        """Return a mask of the values here that are not null and not inside a null; None if all are."""
        if not values.null_count:
            return self.inside
        there = np.asarray(values.is_valid())
        return there if self.inside is None else there & self.inside


def top(count: int) -> Place:
    """Return the place of `count` rows."""
    return Place(np.arange(count, dtype=np.int64), None, lambda _: "$", "$")


def everywhere(place: Place) -> Mask:
    """Return a mask that is true for every value of a place."""
    return np.ones(len(place.rows), np.bool_)


def elements(place: Place, offsets: npt.NDArray[np.int32], there: Mask | None) -> Place:
    """Return the place of the elements of lists, from the lists' offsets and the mask of the lists that exist."""
    owners = _owners(offsets)

    def path(index: int) -> str:
        owner = int(owners[index])
        return f"{place.path(owner)}[{index - int(offsets[owner])}]"

    return Place(place.rows[owners], None if there is None else there[owners], path, f"{place.paths}[]")


def entries(place: Place, offsets: npt.NDArray[np.int32], there: Mask | None) -> Place:
    """Return the place of the keys or values of maps, from the maps' offsets and the mask of the maps that exist."""
    owners = _owners(offsets)

    def path(index: int) -> str:
        # The key is not shown.
        return f"{place.path(int(owners[index]))}[...]"

    return Place(place.rows[owners], None if there is None else there[owners], path, f"{place.paths}{{}}")


def _owners(offsets: npt.NDArray[np.int32]) -> Indices:
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def own_offsets(values: pa.ListArray | pa.MapArray) -> tuple[npt.NDArray[np.int32], int, int]:
    """Return a list's offsets counted from its own first element, and where its elements begin and end."""
    offsets = values.offsets.to_numpy(zero_copy_only=False)
    start, end = int(offsets[0]), int(offsets[-1])
    return (offsets - start).astype(np.int32), start, end
