"""Keyed hash: HMAC-SHA256 (RFC 2104) of a column, by DataFusion's SHA-256.

That is two calls for a column: SHA-256 of the key's inner pad and the value, then of the outer pad and that.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import FrazilError

_BLOCK = 64
"""Bytes that SHA-256 reads at a time."""
_SAMPLE = 1_000
"""Values that say whether others are likely to repeat."""
_DIGITS = np.frombuffer(b"".join(f"{byte:02x}".encode() for byte in range(256)), np.uint16)
"""The two digits of each byte, looked up as one number."""


def keyed_hash(values: pa.Array, key: bytes) -> pa.Array:
    """The HMAC-SHA256 of each value in hexadecimal digits; null of null.

    Args:
        values: Bytes.
        key: Of any length.
    """
    if _repeats(values):
        encoded = values.dictionary_encode()
        return keyed_hash(encoded.dictionary, key).take(encoded.indices)
    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner = _sha256(_behind(bytes(byte ^ 0x36 for byte in padded), values))
    outer = _sha256(_behind(bytes(byte ^ 0x5C for byte in padded), inner))
    return _hex(outer)


def _repeats(values: pa.Array) -> bool:
    """Whether to hash each value once: in a sample, at most half of the values are different."""
    sample = values[:_SAMPLE]
    return len(values) > 1 and 2 * len(sample.unique()) <= len(sample)


def _behind(pad: bytes, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(pad, pa.binary()), values, pa.scalar(b"", pa.binary()))


def check_engine() -> None:
    """See that the package is there.

    Raises:
        FrazilError: It is not.
    """
    try:
        import datafusion  # noqa: F401
    except ModuleNotFoundError as problem:
        if problem.name != "datafusion":
            raise
        raise FrazilError(
            "The hash of `mask` needs a package that is not installed (datafusion).",
            fix="pip install 'frazil[registry]'",
        ) from None


def _sha256(values: pa.Array) -> pa.Array:
    import datafusion
    from datafusion import functions

    count = len(values)
    if not count:
        return pa.array([], pa.binary())
    config = datafusion.SessionConfig().with_target_partitions(1).with_batch_size(count)
    frame = datafusion.SessionContext(config).from_arrow(pa.RecordBatch.from_arrays([values], ["v"]))
    found = frame.select(functions.sha256(datafusion.col("v")).alias("v")).collect()
    return pa.concat_arrays([each.column(0).cast(pa.binary()) for each in found])


def _hex(digests: pa.Array) -> pa.Array:
    """Binaries of 32 bytes in hexadecimal digits."""
    count = len(digests)
    filled = pc.fill_null(digests, bytes(32))
    raw = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    start = filled.offset * 32
    digits = _DIGITS.take(raw[start : start + 32 * count])
    offsets = pa.py_buffer(np.arange(0, 64 * count + 1, 64, dtype=np.int32))
    found = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(digits))
    return pc.if_else(digests.is_valid(), found, pa.scalar(None, pa.string())) if digests.null_count else found
