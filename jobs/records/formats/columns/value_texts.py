"""Texts of values, which the decoders read back as the same values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_DIGITS = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])


def texts(array: pa.Array, source: ice.IcebergType) -> pa.Array:
    """Convert values to texts: numbers in JSON's form, times in ISO 8601, a uuid with dashes."""
    match source:
        case ice.StringType():
            return array
        case ice.FloatType() | ice.DoubleType():
            found = array.cast(pa.string())
            for word, says in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
                found = pc.if_else(pc.equal(found, word), says, found)
            return found
        case ice.DecimalType():
            return _decimals(array, source.scale)
        case ice.TimestampType() | ice.TimestamptzType():
            found = pc.replace_substring(array.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
            return found if isinstance(source, ice.TimestampType) else pc.binary_join_element_wise(found, "Z", "")
        case ice.UUIDType():
            return _uuids(array)
        case _:
            return array.cast(pa.string())


def _decimals(array: pa.Array, scale: int) -> pa.Array:
    """Write decimals with all digits of the scale: Arrow writes an exponent for more than six leading zeros."""
    if scale <= 6:
        return array.cast(pa.string())
    whole = pa.decimal128(array.type.precision, 0)
    number = pa.Array.from_buffers(whole, len(array), array.buffers(), offset=array.offset).cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(number, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(number, "-"), "-", "")
    parts = (pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale))
    return pc.binary_join_element_wise(sign, *parts, "")


def _uuids(array: pa.Array) -> pa.Array:
    count = len(array)
    filled = pc.fill_null(array, pa.scalar(bytes(16), array.type))
    raw = np.frombuffer(filled.buffers()[1], np.uint8)[filled.offset * 16 : (filled.offset + count) * 16]
    out = np.full((count, 36), ord("-"), np.uint8)
    out[:, _DIGITS] = _HEX[raw].reshape(count, 32)
    offsets = pa.py_buffer(np.arange(0, 36 * count + 1, 36, dtype=np.int32))
    found = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(out.tobytes()))
    return pc.if_else(array.is_valid(), found, pa.scalar(None, pa.string())) if array.null_count else found
