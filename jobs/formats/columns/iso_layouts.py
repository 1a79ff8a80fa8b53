"""The usual texts of dates and times, recognised for a whole column at once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SECONDS = "0000-00-00T00:00:00"
_FRACTIONS = ("", *(f".{'0' * digits}" for digits in range(1, 7)))
# The usual texts, all of one length: 0 is any digit. The bulk casts refuse those that are no date or no time.
LAYOUTS = {
    "date": {10: "0000-00-00"},
    "timestamp": {len(_SECONDS + end): _SECONDS + end for end in _FRACTIONS},
    "timestamptz": {len(_SECONDS + end) + 1: _SECONDS + end + "Z" for end in _FRACTIONS},
}
"""By the name of the type and the length of the text."""


def looks_like(text: pa.StringArray, layout: str) -> bool:
    """Whether all texts, which are as long as the layout, have its separators and digits in its places."""
    _, offsets, data = text.buffers()
    size = len(text) * len(layout)
    lowest, span = _repeated(layout, 1 << (len(text) - 1).bit_length())
    first = int(np.frombuffer(offsets, np.int32)[text.offset])
    return bool((np.frombuffer(data, np.uint8, size, first) - lowest[:size] <= span[:size]).all())


@lru_cache(maxsize=16)
def _repeated(layout: str, times: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The lowest byte at each place, and how far above it a byte may be."""
    lowest = np.frombuffer(layout.encode(), np.uint8)
    return np.tile(lowest, times), np.tile(np.where(lowest == ord("0"), 9, 0).astype(np.uint8), times)
