"""Fixed text: numbers as hexadecimal digits of one width, joined to texts that sort as the numbers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.transforms.masks import Mask, mask_of

Digits: TypeAlias = npt.NDArray[np.uint8]
"""Characters of one width: a row for each text."""

_PAIRS: Digits = np.frombuffer("".join(f"{each:02x}" for each in range(256)).encode(), np.uint8).reshape(256, 2)
_SIGN = np.uint64(1 << 63)


def number_digits(values: pa.Array, width: int = 16) -> Digits:
    """Return whole numbers from 0 on as hexadecimal digits; null as zeros.

    Args:
        values: Numbers of 64 bits. A negative number sorts behind all others, by its bits.
        width: Number of digits, even; more significant ones are left out.
    """
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return _digits(numbers.view(np.uint64), width)


def signed_digits(values: pa.Array) -> Digits:
    """Return whole numbers as 16 hexadecimal digits that sort as the numbers do, negative ones first; null as zeros."""
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    found = _digits(numbers.view(np.uint64) ^ _SIGN, 16)
    found[mask_of(values.is_null())] = ord("0")
    return found


def text_digits(values: pa.Array, width: int) -> Digits:
    """Return texts of lower-case hexadecimal digits, padded with zeros; null, and a longer one, as zeros."""
    fits = pc.fill_null(pc.less_equal(pc.utf8_length(values), width), False)
    padded = pc.utf8_lpad(pc.if_else(fits, values, ""), width=width, padding="0")
    offsets = np.frombuffer(padded.buffers()[1], np.int32)[padded.offset :]
    data = padded.buffers()[2] if len(values) else None
    text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return text[offsets[0] : offsets[0] + len(values) * width].reshape(len(values), width)


def joined_digits(parts: Sequence[Digits], valid: Mask) -> pa.Array:
    """Return texts of parts with "/" between them.

    Args:
        parts: Parts of equal length.
        valid: Mask of the texts that exist; the others are null.
    """
    count, slash = len(valid), np.full((len(valid), 1), ord("/"), np.uint8)
    pieces = [each for part in parts for each in (slash, part)][1:]
    text = np.ascontiguousarray(np.concatenate(pieces, axis=1))
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(text.shape[1])
    found = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return found if valid.all() else pc.if_else(pa.array(valid), found, pa.scalar(None, pa.string()))


def _digits(numbers: npt.NDArray[np.uint64], width: int) -> Digits:
    pairs = _PAIRS[numbers.astype(">u8").view(np.uint8).reshape(-1, 8)]
    return pairs.reshape(-1, 16)[:, 16 - width :]
