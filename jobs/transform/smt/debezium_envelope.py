"""Envelope of Debezium: the columns before, after, op and source of a change event, and what steps take of them."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.smt.either_row import either_fields, struct_of
from jobs.transform.transform import Rows


def row_fields(columns: Columns, smt: str, *, deleted: bool = False) -> tuple[ice.NestedField, ...]:
    """The fields of the row that an event is about.

    Args:
        columns: Of the events.
        smt: What messages call the transform.
        deleted: Whether the row of a deletion is the one before it; else it is what `after` has.

    Raises:
        TransformProblem: These are no events of Debezium.
    """
    kinds = {each.name: each.field_type for each in columns}
    after, before = kinds.get("after"), kinds.get("before")
    if not isinstance(after, ice.StructType) or "op" not in kinds:
        raise TransformProblem(
            f"{smt} takes events of Debezium, with a struct 'after' and 'op'; there are {', '.join(columns.names)}", ()
        )
    if before is None or not deleted:
        return after.fields
    fields = either_fields(after, before) if isinstance(before, ice.StructType) else None
    if fields is None:
        raise TransformProblem(f"{smt} needs 'before' with the fields of 'after', each of a type that takes both", ())
    return fields


def before_and_after(rows: Rows, into: Columns) -> tuple[pa.Array, pa.Array]:
    """The rows before and behind the changes, of one type.

    Args:
        rows: The events.
        into: Columns that begin with those of the row.
    """
    before, after = struct_or_null(rows, "before"), struct_or_null(rows, "after")
    if before.type.equals(after.type):
        return before, after
    names = {*fields_of(before), *fields_of(after)}
    fields = [into.arrow.field(number).with_nullable(True) for number, each in enumerate(into.names) if each in names]
    return struct_of(before, fields), struct_of(after, fields)


def fields_of(array: pa.StructArray) -> list[str]:
    """The names of a struct's fields."""
    return [array.type.field(number).name for number in range(array.type.num_fields)]


def struct_or_null(rows: Rows, name: str) -> pa.Array:
    """A struct of an event; null in every row where there is no such column."""
    if name in rows.columns.names:
        return rows.batch.column(rows.columns.index(name))
    return pa.nulls(rows.count, rows.columns.arrow.field(rows.columns.index("after")).type)


def field_path(columns: Columns, text: str) -> tuple[str, ...] | None:
    """Where a field that is named in Debezium's short way stands; None where there is none."""
    if "." in text:
        struct, _, name = text.partition(".")
        return (struct, name) if _has(columns, (struct, name)) else None
    if text in ("op", "ts_ms", "ts_us", "ts_ns"):
        ways = [(text,)]
    elif text in ("id", "data_collection_order", "total_order"):
        ways = [("transaction", text)]
    else:
        ways = [("source", text), (text,)]
    return next((each for each in ways if _has(columns, each)), None)


def _has(columns: Columns, path: tuple[str, ...]) -> bool:
    return kind_at(columns, path) is not None


def kind_at(columns: Columns, path: tuple[str, ...]) -> ice.IcebergType | None:
    """The type of a column, or of a field of a struct; None where there is none."""
    kind = next((each.field_type for each in columns if each.name == path[0]), None)
    for name in path[1:]:
        fields = kind.fields if isinstance(kind, ice.StructType) else ()
        kind = next((each.field_type for each in fields if each.name == name), None)
    return kind


def value_of(rows: Rows, path: tuple[str, ...]) -> pa.Array:
    """The values at a path of `field_path`; null where a struct above is."""
    array = rows.batch.column(rows.columns.index(path[0]))
    return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array
