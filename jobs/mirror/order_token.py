"""Order token: a text that sorts as the changes of one key happened; see `merge_plan`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

SNAPSHOT_ROW, STREAMED = "0", "1"
NO_POSITION = "-"
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def order_token(generation: int, position: str | None, kind: str, offset: int) -> str:
    """The token of one change.

    Args:
        kind: `SNAPSHOT_ROW` or `STREAMED`.
    """
    return f"{generation:04x}.{position or NO_POSITION}.{kind}.{offset:016x}"


def token_place(token: str) -> str | None:
    """The generation and position of a token: changes of one place happened at once; None without a position."""
    place, *behind = token.rsplit(".", 2)
    return None if len(behind) < 2 or place.partition(".")[2] == NO_POSITION else place


def hex_text(numbers: np.ndarray[Any, Any], width: int) -> pa.Array:
    """Numbers in so many hexadecimal digits."""
    shifts = np.arange(4 * (width - 1), -1, -4, dtype=np.int64)
    digits = _DIGITS[(numbers.astype(np.int64)[:, None] >> shifts) & 15]
    starts = np.arange(0, width * (len(numbers) + 1), width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(digits)))
