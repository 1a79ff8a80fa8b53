"""May files written under one schema be committed to a table that has another by now?

By Iceberg's type promotion, which is for files that are there; rows yet to be written fit more (`schema/widening`).
"""

from __future__ import annotations

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField


def still_fits(written: Schema, current: Schema) -> bool:
    """True if every written field is still there, with the same or a promoted type, and nothing new is required.

    Args:
        written: The schema whose field ids the data files carry.
        current: The table's schema now.
    """
    before = index_by_id(written)
    now = index_by_id(current)
    return all(field_id in now and _holds(field, now[field_id]) for field_id, field in before.items()) and all(
        not field.required for field_id, field in now.items() if field_id not in before
    )


def _holds(written: NestedField, current: NestedField) -> bool:
    if current.required and not written.required:
        return False
    return _promotes(written.field_type, current.field_type)


def _promotes(old: IcebergType, new: IcebergType) -> bool:
    if old.is_primitive and new.is_primitive:
        return (
            old == new
            or (isinstance(old, IntegerType) and isinstance(new, LongType))
            or (isinstance(old, FloatType) and isinstance(new, DoubleType))
            or (
                isinstance(old, DecimalType)
                and isinstance(new, DecimalType)
                and old.scale == new.scale
                and old.precision <= new.precision
            )
        )
    # Children have ids of their own and are compared by them.
    return type(old) is type(new)
