"""Columns of an Arrow schema that own code gives, as those of rows."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice

from jobs.schema.arrow_schema import rows_arrow_type
from jobs.transform.columns import Columns, TransformProblem, column

_PRIMITIVES: dict[pa.DataType, ice.PrimitiveType] = {
    rows_arrow_type(each): each
    for each in (
        *(ice.BooleanType(), ice.IntegerType(), ice.LongType(), ice.FloatType(), ice.DoubleType(), ice.DateType()),
        *(ice.TimeType(), ice.TimestampType(), ice.TimestamptzType(), ice.StringType(), ice.BinaryType()),
    )
}


def columns_of(schema: pa.Schema, before: Columns) -> Columns:
    """The columns of a schema. One that was there with this Arrow type keeps its own type: a uuid is 16 bytes.

    Raises:
        TransformProblem: A type is none that rows have, or two columns have one name.
    """
    known = dict(zip(before.names, before.fields, strict=True))
    fields: list[ice.NestedField] = []
    for field in schema:
        old = known.get(field.name)
        kept = old is not None and rows_arrow_type(old.field_type) == field.type
        kind = old.field_type if old is not None and kept else _type(field.type, field.name)
        fields.append(column(field.name, kind, required=not field.nullable))
    return Columns.of(fields)


def _type(kind: pa.DataType, name: str) -> ice.IcebergType:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return ice.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return ice.FixedType(kind.byte_width)
    raise TransformProblem(
        f"the column '{name}' has the Arrow type {kind}, which no row has; known are those of the schema "
        "text, with times in microseconds and texts as string, and structs, lists and maps as they come from the row"
    )
