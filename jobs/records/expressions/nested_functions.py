"""Functions of structs, lists and maps, and of a record's headers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import (
    Function,
    call,
    constant,
    function,
)
from jobs.records.expressions.casts import coerced
from jobs.records.expressions.nodes import Node
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    BINARY,
    INT,
    STRING,
    is_integer,
    name_of,
)


def member(node: Node, name: str, expression: str) -> Node:
    """Return a field of a struct; null if the struct is null.

    Raises:
        Mismatch: The node is no struct, or has no such field.
    """
    kind = node.type
    if not isinstance(kind, ice.StructType):
        raise Mismatch(f"'.{name}' needs a struct, found {name_of(kind)}")
    found = next((each for each in kind.fields if each.name == name), None)
    if found is None:
        raise Mismatch(unknown(name, [each.name for each in kind.fields], "field"))
    nullable = node.nullable or not found.required
    return call(partial(_field, name), [node], found.field_type, expression, nullable=nullable)


def unknown(name: str, known: Sequence[str], what: str) -> str:
    """Return the sentence about an unknown name, with the nearest known one."""
    folded = {each.casefold(): each for each in reversed(known)}
    near = get_close_matches(name.casefold(), folded, n=1)
    if near:
        return f"there is no {what} '{name}'; did you mean {folded[near[0]]}?"
    some = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
    return f"there is no {what} '{name}'; there are {some}" if known else f"there is no {what} '{name}'"


def element(node: Node, index: Node, expression: str) -> Node:
    """Return an element of a list, counted from 1, or the value of a map's key; null if there is none.

    Raises:
        Mismatch: The node is neither list nor map, or the index has the wrong type.
    """
    match node.type:
        case ice.ListType() as kind:
            found = constant(index, "the number of an element")
            if not is_integer(index.type) or not isinstance(found, int) or not 1 <= found <= 2**31 - 1:
                raise Mismatch("elements of a list are numbered from 1")
            return call(partial(element_of, found - 1), [node], kind.element_type, expression, nullable=True)
        case ice.MapType() as kind:
            key = coerced(index, kind.key_type, expression)
            constant(key, "a key")
            scalar = key.value  # pyright: ignore[reportAttributeAccessIssue]
            return call(partial(_value, scalar), [node], kind.value_type, expression, nullable=True)
        case other:
            raise Mismatch(f"'[…]' needs a list or a map, found {name_of(other)}")


def _field(name: str, structs: pa.StructArray) -> pa.Array:
    return pc.struct_field(structs, name)


def _value(key: pa.Scalar, maps: pa.MapArray) -> pa.Array:
    return pc.map_lookup(maps, key, "last")


def _count(arguments: Sequence[Node], expression: str) -> Node:
    node = arguments[0]
    if not isinstance(node.type, (ice.ListType, ice.MapType)):
        raise Mismatch(f"needs a list or a map, found {name_of(node.type)}")
    kernel = pc.list_value_length if isinstance(node.type, ice.ListType) else _entries
    return call(kernel, [node], INT, expression)


def _entries(maps: pa.MapArray) -> pa.Array:
    offsets = maps.offsets.to_numpy(zero_copy_only=False).astype(np.int32)
    return pa.array(np.diff(offsets), mask=maps.is_null().to_numpy(zero_copy_only=False))


def header(headers: Node, name: Node, expression: str, *, text: bool = True) -> Node:
    """Return the value of a record's last header of a name; null if there is none."""
    wanted = constant(name, "the name of a header")
    found = call(partial(_last_header, str(wanted)), [headers], BINARY, expression, nullable=True)
    return call(partial(pc.cast, target_type=pa.string()), [found], STRING, expression) if text else found


def _last_header(name: str, headers: pa.ListArray) -> pa.Array:
    count = len(headers)
    offsets = headers.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    values = headers.values
    hits = np.flatnonzero(pc.fill_null(pc.equal(values.field("key"), name), False).to_numpy(zero_copy_only=False))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    last = np.full(count, -1, np.int64)
    # A hit belongs to the last record whose headers begin before it; later hits overwrite earlier ones.
    last[np.searchsorted(offsets, hits, side="right") - 1] = hits
    return values.field("value").take(pa.array(last, mask=last < 0))


FUNCTIONS: tuple[Function, ...] = (
    function("cardinality(value)", "how many elements a list or a map has", _count),
)  # fmt: skip


def element_of(index: int, lists: pa.ListArray) -> pa.Array:
    """Return the element with this index, from 0, of each list; null if a list is null or shorter."""
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    at = offsets[:-1] + index
    there = (at < offsets[1:]) & lists.is_valid().to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(at, mask=~there))
