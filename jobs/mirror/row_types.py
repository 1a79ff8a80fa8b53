"""Row types: rows that were folded from a changelog, in the types that the mirror's columns have; types with maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg import types as ice

from jobs.increment.offset_ranges import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


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


def narrowed_to(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows of a mirror in the types of changes, all of them optional: the way back, so that each value fits.

    Args:
        rows: In types that may be wider, with fields in another order; what they lack is null.
        wanted: The columns of changes.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StructField, StructType

    own = {field.name: field.dataType for field in rows.schema.fields}
    alike = [
        StructField(field.name, arranged_as(own.get(field.name, field.dataType), field.dataType))
        for field in wanted.fields
    ]
    there = _in_schema_of(rows, StructType(alike))
    return there.select(
        *[
            sql.col(quoted_name(field.name)).cast(_optional_type(field.dataType)).alias(field.name)
            for field in wanted.fields
        ]
    )


def arranged_as(own: DataType, wanted: DataType) -> DataType:
    """A type with the fields of another one, in its order, each as it is; where it has none of them, as the other's."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(own, StructType) and isinstance(wanted, StructType):
        mine = {field.name: field.dataType for field in own.fields}
        return StructType(
            [
                StructField(field.name, arranged_as(mine.get(field.name, field.dataType), field.dataType))
                for field in wanted.fields
            ]
        )
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(arranged_as(own.elementType, wanted.elementType))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        return MapType(arranged_as(own.keyType, wanted.keyType), arranged_as(own.valueType, wanted.valueType))
    return own


def _optional_type(kind: DataType) -> DataType:
    """A type whose parts may all be null."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(field.name, _optional_type(field.dataType)) for field in kind.fields])
        case ArrayType():
            return ArrayType(_optional_type(kind.elementType))
        case MapType():
            return MapType(_optional_type(kind.keyType), _optional_type(kind.valueType))
        case _:
            return kind


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
