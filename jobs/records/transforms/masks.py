"""Masks of rows: Arrow's booleans as NumPy's, and values without some of their rows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]


def mask_of(values: pa.Array) -> Mask:
    """Return a mask of the true values; null is not true."""
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False)


def rows_where(values: pa.Array) -> list[int]:
    """Return the indices of the values that are true."""
    return np.flatnonzero(mask_of(values)).tolist()


def nulled(array: pa.Array, rows: list[int]) -> pa.Array:
    """Return the array with null in some rows."""
    if not rows:
        return array
    mask = np.zeros(len(array), dtype=bool)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
