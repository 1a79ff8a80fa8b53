"""Envelope of Debezium: the columns before, after, op and source of a change event, and what steps take of them."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.transform.columns import Columns, TransformProblem, same
from jobs.transform.transform import Rows


def row_fields(columns: Columns, smt: str) -> tuple[ice.NestedField, ...]:
    """The fields of the row that an event is about.

    Args:
        columns: Of the events.
        smt: What messages call the transform.

    Raises:
        TransformProblem: These are no events of Debezium.
    """
    kinds = {each.name: each.field_type for each in columns}
    after, before = kinds.get("after"), kinds.get("before")
    if not isinstance(after, ice.StructType) or "op" not in kinds:
        raise TransformProblem(
            f"{smt} takes events of Debezium, with a struct 'after' and 'op'; there are {', '.join(columns.names)}", ()
        )
    if before is not None and not same(before, after):
        raise TransformProblem(f"{smt} needs 'before' of the same type as 'after'", ())
    return after.fields


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
