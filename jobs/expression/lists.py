"""Lists of Arrow: one element of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def element_of(index: int, lists: pa.ListArray) -> pa.Array:
    """The element of this number, from 0, of each list; null where a list is null or shorter."""
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    at = offsets[:-1] + index
    there = (at < offsets[1:]) & lists.is_valid().to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(at, mask=~there))
