"""Row fields: the columns of records that are rows themselves, and what a key says of those that lack one."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.transform.changes.changelog import KEY
from jobs.transform.columns import Columns
from jobs.transform.masks import Mask


def own_fields(columns: Columns, besides: Collection[str]) -> tuple[ice.NestedField, ...]:
    """The columns of rows that are the source's: neither the key nor others that a record has beside its value."""
    return tuple(each for each in columns if each.name != KEY and each.name not in besides)


def with_key_values(
    names: Sequence[str], arrays: Sequence[pa.Array], keys: pa.Array | None, among: Mask
) -> list[pa.Array]:
    """The columns of rows, with the key's values in the columns of its names where they are null.

    Args:
        names: Of the columns.
        arrays: Of one length.
        keys: Structs; None where there are none.
        among: The rows that may lack what their key says.
    """
    if keys is None or not among.any():
        return list(arrays)
    mask = pa.array(among)
    found: list[pa.Array] = []
    for name, array in zip(names, arrays, strict=True):
        at = keys.type.get_field_index(name)
        value = as_kind(pc.struct_field(keys, [at]), array.type) if at >= 0 and array.null_count else None
        found.append(array if value is None else pc.if_else(pc.and_(mask, array.is_null()), value, array))
    return found


def as_kind(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values in a type that holds all of them; None where it may not."""
    if array.type.equals(kind):
        return array
    if pa.types.is_integer(array.type) and pa.types.is_integer(kind) and array.type.bit_width < kind.bit_width:
        return array.cast(kind)
    return None
