"""Restored lineage: behind a break that an operator has told, a source's positions belong to another lineage.

So all that holds for two sources holds for one before and after it was restored from a backup.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirror.merge_plan import Break

_SUFFIX = " restored "
_RESTORED = re.compile(rf"{_SUFFIX}\d+$")


def restored_lineages(
    lineages: pa.Array | pa.ChunkedArray, offsets: np.ndarray[Any, Any], breaks: tuple[Break, ...]
) -> pa.Array | pa.ChunkedArray:
    """Lineages of changes, those behind a break with its number.

    Args:
        lineages: Of each change, or null.
        offsets: Of each.
        breaks: Of the partition, by offset.
    """
    if not breaks:
        return lineages
    place = np.searchsorted([each.since for each in breaks], offsets, side="right")
    suffixes = pa.array(["", *(f"{_SUFFIX}{each.number}" for each in breaks)]).take(pa.array(place))
    return pc.binary_join_element_wise(lineages.cast(pa.string()), suffixes, "")


def source_lineage(lineage: str) -> str:
    """The lineage as the source's changes have it."""
    return _RESTORED.sub("", lineage)
