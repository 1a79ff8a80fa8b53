"""SQL for rows that have a promoted field in its column, or still among what is kept."""

from __future__ import annotations

from pyiceberg import types as ice

from jobs.promote.promotion import Promotion
from jobs.schema.declared import Primitive, StructType
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.schema.tokens import default_encoding

_SPARK: dict[type[ice.IcebergType], str] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "bigint",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.DateType: "date",
    ice.TimestampType: "timestamp_ntz",
    ice.TimestamptzType: "timestamp",
    ice.StringType: "string",
    ice.UUIDType: "string",
}


def coalesce_sql(promotion: Promotion) -> str | None:
    """An expression of Spark SQL that gives the field of every row, wherever that has it.

    None where no short one does: of structs, lists and maps, of bytes, and where JSON carries values in another way.
    """
    kind = promotion.type
    if not isinstance(kind, Primitive) or kind.encoding not in (None, default_encoding(kind.name)):
        return None
    column = iceberg_schema(StructType(promotion.record.fields)).find_field(promotion.column).field_type
    if isinstance(column, ice.DecimalType):
        spark = f"decimal({column.precision},{column.scale})"
    elif (found := _SPARK.get(type(column))) is not None:
        spark = found
    else:
        return None
    if any("'" in name or "`" in name or "]" in name for name in promotion.path):
        return None
    place = "$" + "".join(f".{name}" if _plain(name) else f"['{name}']" for name in promotion.path)
    columns = ".".join(name if _plain(name) else f"`{name}`" for name in promotion.path)
    text = f'get_json_object({EXTRA_COLUMN}, "{place}")'
    return f"coalesce({columns}, {text if spark == 'string' else f'cast({text} as {spark})'})"


def _plain(name: str) -> bool:
    return name.isascii() and name.isidentifier()
