"""Row types: rows that were folded from a changelog, in the types that the mirror's columns have; types with maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg import types as ice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def in_types_of(rows: DataFrame, columns: Sequence[str], mirror: StructType, also: Sequence[str]) -> DataFrame:
    """Columns of rows as a merge writes them: an adopted mirror may have wider types, and fields in another order.

    Args:
        rows: With these columns at least.
        columns: Which of the mirror's.
        mirror: The mirror's columns as Spark has them.
        also: Further columns of the rows, which stay as they are.
    """
    from pyspark.sql.types import StructType

    kinds = {field.name: field for field in mirror.fields} | {
        field.name: field for field in rows.schema.fields if field.name in also
    }
    return _in_schema_of(rows, StructType([kinds[name] for name in (*columns, *also)]))


def _in_schema_of(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows in the types of a schema, whose columns all become optional; what they lack is null."""
    from pyspark.sql.types import StructType

    # Spark refuses to make a column required that is not; what is compared are values.
    return rows.to(StructType.fromJson(_optional(wanted.jsonValue())))


def has_map(kind: ice.IcebergType) -> bool:
    """Whether there is a map in a type: Spark hashes none."""
    match kind:
        case ice.MapType():
            return True
        case ice.ListType():
            return has_map(kind.element_type)
        case ice.StructType():
            return any(has_map(field.field_type) for field in kind.fields)
        case _:
            return False


def _optional(described: Any) -> Any:
    match described:
        case dict():
            nulls = ("nullable", "containsNull", "valueContainsNull")
            return {key: True if key in nulls else _optional(value) for key, value in described.items()}
        case list():
            return [_optional(each) for each in described]
        case _:
            return described
