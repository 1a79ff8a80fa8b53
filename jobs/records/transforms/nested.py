"""Nested columns: changes of values at paths within structs and lists, with all values around them unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.interface.problems import BadValue
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.transforms.columns import Columns, retyped
from jobs.records.transforms.path import Path, shown
from jobs.records.transforms.transform import RowFailure, Rows

Change: TypeAlias = Callable[[pa.Array, ice.NestedField], tuple[pa.Array, list[BadValue]]]
"""Converts values, given their column, to new values, and the refused ones by their index."""
Retype: TypeAlias = Callable[[ice.NestedField], ice.IcebergType]


def retyped_at(columns: Columns, paths: Sequence[Path], retype: Retype) -> Columns:
    """Return the columns with other types at some paths.

    Raises:
        TransformProblem: As `retype` does.
    """
    return Columns(tuple(_retyped(each, _tails(paths, each.name), retype) for each in columns.fields))


def changed_at(
    rows: Rows, paths: Sequence[Path], change: Change, into: Columns
) -> tuple[list[pa.Array], list[RowFailure]]:
    """Return the columns of rows with other values at some paths, and the rows whose values were refused.

    Args:
        rows: Rows that the step got.
        paths: Paths of existing columns, none within another.
        change: Change of the values of one column.
        into: The resulting columns.
    """
    arrays: list[pa.Array] = []
    failures: list[RowFailure] = []
    for before, after, array in zip(rows.columns.fields, into.fields, rows.batch.columns, strict=True):
        tails = _tails(paths, before.name)
        if not tails:
            arrays.append(array)
            continue
        found, bad = _changed(array, before, after.field_type, tails, change, (before.name,))
        arrays.append(found)
        failures.extend(bad)
    return arrays, failures


def value_at(array: pa.Array, path: Sequence[str]) -> pa.Array:
    """Return the values of a field within structs; null where a struct above it is null."""
    return pc.struct_field(array, list(path)) if path else array


def parents(array: pa.Array) -> np.ndarray:
    """Return the row of each element of a column of lists."""
    return pc.list_parent_indices(array).to_numpy()


def _changed(
    array: pa.Array, field: ice.NestedField, into: ice.IcebergType, tails: list[Path], change: Change, path: Path
) -> tuple[pa.Array, list[RowFailure]]:
    if tails == [()]:
        found, bad = change(array, field)
        return found, [RowFailure(each.index, each.error_class, each.message, shown(path)) for each in bad]
    kind = field.field_type
    if isinstance(kind, ice.ListType) and isinstance(into, ice.ListType):
        element = retyped(kind.element_field, kind.element_type)
        values, bad = _changed(array.flatten(), element, into.element_type, tails, change, path)
        if bad:
            of = parents(array)
            bad = [each._replace(row=int(of[each.row])) for each in bad]
        return list_of(array, values, rows_arrow_type(into)), bad
    if not isinstance(kind, ice.StructType) or not isinstance(into, ice.StructType):
        raise TypeError(f"there is nothing within {kind}")
    failures: list[RowFailure] = []
    children: list[pa.Array] = []
    for before, after in zip(kind.fields, into.fields, strict=True):
        child, below = pc.struct_field(array, before.name), _tails(tails, before.name)
        if below:
            child, bad = _changed(child, before, after.field_type, below, change, (*path, before.name))
            failures.extend(bad)
        children.append(child)
    return struct_of(children, rows_arrow_type(into), array), failures


def struct_of(children: Sequence[pa.Array], kind: pa.DataType, like: pa.Array) -> pa.Array:
    """Return a column of structs that are null where those of another column are."""
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(list(children), fields=list(kind), mask=mask)


def list_of(array: pa.Array, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of lists as long as those of another one."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def _tails(paths: Sequence[Path], name: str) -> list[Path]:
    return [path[1:] for path in paths if path and path[0] == name]


def _retyped(field: ice.NestedField, tails: list[Path], retype: Retype) -> ice.NestedField:
    if not tails:
        return field
    if tails == [()]:
        return retyped(field, retype(field))
    return retyped(field, _inner(field.field_type, tails, retype))


def _inner(kind: ice.IcebergType, tails: list[Path], retype: Retype) -> ice.IcebergType:
    match kind:
        case ice.ListType():
            inner = _inner(kind.element_type, tails, retype)
            return ice.ListType(kind.element_id, inner, element_required=kind.element_required)
        case ice.StructType():
            return ice.StructType(*(_retyped(each, _tails(tails, each.name), retype) for each in kind.fields))
        case _:
            raise TypeError(f"there is nothing within {kind}")
