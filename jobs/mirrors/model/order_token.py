"""Order token: a text by which changes of one key sort in the order in which they happened; see `merge_plan`."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SNAPSHOT_ROW, STREAMED = "0", "1"
NO_POSITION = "-"
_BINLOG_WIDTH, _ROW_BEGINS, _ANY_ROW = 34, 25, "/ffffffff"
"""Width and row of positions in a binlog (`positions/binlog`). Tokens of earlier releases keep the row number."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def order_token(generation: int, position: str | None, kind: str, offset: int) -> str:
    """Return the token of one change.

    Args:
        kind: `SNAPSHOT_ROW` or `STREAMED`.
    """
    return f"{generation:04x}.{position or NO_POSITION}.{kind}.{offset:016x}"


def token_place(token: str) -> str | None:
    """Return a token's timeline and position, which simultaneous changes share; None without a position."""
    place, *behind = token.rsplit(".", 2)
    return None if len(behind) < 2 or place.partition(".")[2] == NO_POSITION else place


def order_positions(positions: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the positions that order changes: those in a binlog lose their row number.

    All events of a compressed transaction (`binlog_transaction_compression`) have the same position in the binlog, and
    each numbers its rows from 0. So Kafka's offsets order the changes with one position.
    """
    binlog = pc.equal(pc.binary_length(positions), _BINLOG_WIDTH)
    if not pc.any(binlog).as_py():
        return positions
    anywhere = pc.utf8_replace_slice(positions, _ROW_BEGINS, _BINLOG_WIDTH, _ANY_ROW)
    return pc.if_else(binlog, anywhere, positions)


def least_position(order: str) -> str:
    """Return the lowest source position that sorts like this one.

    Args:
        order: Result of `order_positions`.
    """
    return order.removesuffix(_ANY_ROW)


def hex_text(numbers: np.ndarray[Any, Any], width: int) -> pa.Array:
    """Format numbers with `width` hexadecimal digits."""
    shifts = np.arange(4 * (width - 1), -1, -4, dtype=np.int64)
    digits = _DIGITS[(numbers.astype(np.int64)[:, None] >> shifts) & 15]
    starts = np.arange(0, width * (len(numbers) + 1), width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(digits)))
