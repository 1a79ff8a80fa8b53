"""Schema of primitive formats: the type of the one column that values become."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.schema.declared import Primitive, StructType

COLUMN_TYPES: Mapping[str, str] = {
    "string": "string",
    "bytes": "binary",
    "boolean": "boolean",
    "short": "int",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
}
"""The type that the one column has, by the name of the format."""


def schema_problem(kind: str, declared: StructType) -> str | None:
    """What is wrong with the columns that a stream declares for values of a primitive format; None if nothing."""
    needed = COLUMN_TYPES[kind]
    match declared.fields:
        case (only,) if isinstance(only.type, Primitive) and str(only.type) == needed:
            return None
        case (only,):
            return f"values as {kind} are one column of the type {needed}, not {only.type}"
        case _:
            return f"values as {kind} are one column, such as 'value {needed}', not {len(declared.fields)}"
