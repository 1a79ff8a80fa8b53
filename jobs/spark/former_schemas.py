"""Former schemas: whether files of one are read alike by Iceberg's own reader and by the one without Spark.

Both find a column by its field id, give null where a file lacks it, and widen numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
)

_WIDENED = {(IntegerType, LongType), (FloatType, DoubleType)}


def read_otherwise(schema: Schema, former: Schema) -> str | None:
    """Why files of a former schema may not be read alike, as a part of a sentence; None if they are.

    Args:
        schema: The table's, in whose columns the rows are wanted.
        former: One that the table had before.
    """
    now, then = index_by_id(schema), index_by_id(former)
    for number, field in now.items():
        if why := next(_reasons(field, then), None):
            return f"{schema.find_column_name(number)}, {why}"
    return None


def _reasons(field: NestedField, then: dict[int, NestedField]) -> Iterator[str]:
    before = then.get(field.field_id)
    if before is None:
        if field.required:
            yield "a column that is required, came later than others"
        return
    if field.required and not before.required:
        yield "a column that is required, was optional before"
    if not _alike(before.field_type, field.field_type):
        yield f"was of type {before.field_type} before"
    kind = field.field_type
    if isinstance(kind, StructType) and not any(each.field_id in then for each in kind.fields):
        yield "a struct, has no field that it had before"


def _alike(before: IcebergType, now: IcebergType) -> bool:
    if not (before.is_primitive and now.is_primitive):
        return type(before) is type(now)
    if isinstance(before, DecimalType) and isinstance(now, DecimalType):
        return before.scale == now.scale and before.precision <= now.precision
    return before == now or (type(before), type(now)) in _WIDENED
