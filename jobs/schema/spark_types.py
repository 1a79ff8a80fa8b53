"""Types that Spark cannot read: of a table with such a column it reads nothing, and compacts nothing."""

from __future__ import annotations

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import TimeType


def unread_by_spark(schema: Schema) -> list[str]:
    """Full names of the columns, of nested ones too, on whose account Spark 4.1 (Iceberg 1.12) refuses a table."""
    times = [field_id for field_id, field in index_by_id(schema).items() if isinstance(field.field_type, TimeType)]
    return [schema.find_column_name(field_id) or str(field_id) for field_id in times]


def unread_problem(schema: Schema) -> str | None:
    """Why a table of this schema cannot be maintained, and what to write instead; None if it can."""
    if not (columns := unread_by_spark(schema)):
        return None
    return (
        f"Spark reads and compacts no table with a column of the type time ({', '.join(columns)}): declare it as int, "
        "long or string, or set maintenance.enabled: false for the stream and keep the table in order by other means"
    )
