"""Unavailable values: what Debezium sends in place of a value that its source did not send.

PostgreSQL leaves large values (TOAST) out of the log where an update did not change them; so does Oracle with some
objects. The event has a placeholder then, each type in its own way: the text; its bytes; an array with it as the only
element; an array of the bytes' numbers; a map from it to itself.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.masks import Mask, mask_of

_NAMES = pa.list_(pa.field("element", pa.string()))


def without_placeholders(
    names: Sequence[str], arrays: Sequence[pa.Array], placeholder: str, among: Mask
) -> tuple[list[pa.Array], pa.Array | None]:
    """The columns of rows with null in place of placeholders.

    Args:
        names: Of the columns.
        arrays: Of one length.
        placeholder: The text that stands for a value that was not sent.
        among: The rows that may have one.

    Returns:
        The columns, and for each row the names of those that had one, null without any; None where no row had one.
    """
    columns, at, which = list(arrays), list[np.ndarray](), list[np.ndarray]()
    if not among.any():
        return columns, None
    for number, array in enumerate(arrays):
        found = _placeholders(array, placeholder)
        if found is None or not (mask := mask_of(found) & among).any():
            continue
        columns[number] = pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
        rows = np.flatnonzero(mask)
        at.append(rows)
        which.append(np.full(len(rows), number, np.int64))
    if not at:
        return columns, None
    rows, numbers = np.concatenate(at), np.concatenate(which)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=len(among))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.array(list(names), pa.string()).take(pa.array(numbers[order]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=_NAMES, mask=pa.array(counts == 0))
    return columns, lists


def _placeholders(array: pa.Array, placeholder: str) -> pa.Array | None:
    """Which values are one; None of a type that none can be of."""
    kind = array.type
    if pa.types.is_string(kind):
        return pc.is_in(array, value_set=_texts(placeholder))
    if pa.types.is_binary(kind):
        return pc.equal(array, pa.scalar(placeholder.encode(), kind))
    if pa.types.is_map(kind):
        return _lists_of(array, array.keys, _placeholders(array.keys, placeholder), 1)
    if not pa.types.is_list(kind):
        return None
    element = kind.value_type
    if pa.types.is_integer(element) or pa.types.is_date32(element):
        return _byte_lists(array, placeholder.encode())
    return _lists_of(array, array.values, _elements(array.values, placeholder), 1)


def _elements(values: pa.Array, placeholder: str) -> pa.Array | None:
    if values.type == pa.binary(16):
        return pc.equal(values, pa.scalar(_uuid(placeholder).bytes, values.type))
    if pa.types.is_string(values.type):
        return pc.is_in(values, value_set=pa.array([placeholder, str(_uuid(placeholder))]))
    return _placeholders(values, placeholder) if pa.types.is_binary(values.type) else None


def _lists_of(array: pa.Array, values: pa.Array, found: pa.Array | None, length: int) -> pa.Array | None:
    """The lists of a length whose first element is found."""
    if found is None:
        return None
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    right = np.diff(offsets) == length
    result = np.zeros(len(array), bool)
    if right.any():
        result[right] = mask_of(found)[offsets[:-1][right]]
    return pa.array(result & mask_of(array.is_valid()))


def _byte_lists(array: pa.Array, wanted: bytes) -> pa.Array:
    """The lists of numbers that are those of some bytes."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    right = np.diff(offsets) == len(wanted)
    result = np.zeros(len(array), bool)
    if right.any():
        values = array.values
        whole = values.view(pa.int32()) if pa.types.is_date32(values.type) else values
        numbers = pc.fill_null(whole, -1).to_numpy(zero_copy_only=False)
        signed = np.frombuffer(wanted, np.int8)
        rows = np.flatnonzero(right)
        result[rows] = (numbers[offsets[:-1][rows][:, None] + np.arange(len(wanted))] == signed).all(axis=1)
    return pa.array(result & mask_of(array.is_valid()))


@lru_cache(maxsize=8)
def _texts(placeholder: str) -> pa.Array:
    """The placeholder in the texts that columns may hold: itself, as JSON, and as text of its bytes."""
    raw = placeholder.encode()
    quoted = json.dumps(placeholder)
    encoded = (base64.b64encode(raw), base64.urlsafe_b64encode(raw))
    texts = {
        placeholder,
        quoted,
        f"[{quoted}]",
        f"{{{quoted}:{quoted}}}",
        raw.hex(),
        *(each.decode() for each in encoded),
    }
    return pa.array(sorted(texts), pa.string())


@lru_cache(maxsize=8)
def _uuid(placeholder: str) -> uuid.UUID:
    """The UUID that Java names by the placeholder's bytes."""
    digest = hashlib.md5(placeholder.encode(), usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest, version=3)
