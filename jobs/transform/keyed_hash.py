"""Keyed hash: HMAC-SHA256 (RFC 2104) of a column, in one plan of DataFusion's.

That is SHA-256 of the key's inner pad and the value, then of the outer pad and that.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import FrazilError

_BLOCK = 64
"""Bytes that SHA-256 reads at a time."""
_SAMPLE = 1_000
"""Values that say whether others are likely to repeat."""


def keyed_hash(values: pa.Array, key: bytes) -> pa.Array:
    """The HMAC-SHA256 of each value in hexadecimal digits; null of null.

    Args:
        values: Bytes.
        key: Of any length.
    """
    if _repeats(values):
        encoded = values.dictionary_encode()
        return keyed_hash(encoded.dictionary, key).take(encoded.indices)
    if not len(values):
        return pa.array([], pa.string())
    found = _digests(values, key)
    # The plan takes null for an empty value.
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.string())) if values.null_count else found


def _repeats(values: pa.Array) -> bool:
    """Whether to hash each value once: in a sample, at most half of the values are different."""
    sample = values[:_SAMPLE]
    return len(values) > 1 and 2 * len(sample.unique()) <= len(sample)


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


def _digests(values: pa.Array, key: bytes) -> pa.Array:
    """The hash of each value, in digits; of null the one of no bytes."""
    import datafusion
    from datafusion.functions import concat, encode, sha256

    padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (datafusion.lit(bytes(byte ^ with_ for byte in padded)) for with_ in (0x36, 0x5C))
    hashed = encode(sha256(concat(outer, sha256(concat(inner, datafusion.col("v"))))), "hex")
    config = datafusion.SessionConfig().with_target_partitions(1).with_batch_size(len(values))
    frame = datafusion.SessionContext(config).from_arrow(pa.RecordBatch.from_arrays([values], ["v"]))
    found = frame.select(hashed.alias("v")).collect()
    return pa.concat_arrays([each.column(0).cast(pa.string()) for each in found])
