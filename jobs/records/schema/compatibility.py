"""Schema compatibility: whether a table of one schema takes rows or files of another, by the rules of widening.

The two rules differ in one exception. A column keeps every value of rows that are still to be written if it `holds`
their type. Existing files are read by Iceberg's type promotion (`promotes`), which cannot change a decimal's scale.
"""

from __future__ import annotations

from collections.abc import Container

from pyiceberg import types as ice
from pyiceberg.schema import Schema, index_by_id

from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.kafka_columns import KafkaColumns

_MOST_DIGITS = 38


def holds(value: ice.IcebergType, column: ice.IcebergType) -> bool:
    """Return whether a column of the one type keeps every value of the other exactly; both without parts."""
    match value, column:
        case ice.DecimalType(), ice.DecimalType():
            whole, column_whole = value.precision - value.scale, column.precision - column.scale
            return column.scale >= value.scale and column_whole >= whole
        case (ice.IntegerType(), ice.LongType()) | (ice.FloatType(), ice.DoubleType()):
            return True
        case _:
            return value == column


def promotes(written: ice.IcebergType, column: ice.IcebergType) -> bool:
    """Return whether Iceberg reads files of one type as the other; both without parts."""
    if isinstance(written, ice.DecimalType) and isinstance(column, ice.DecimalType) and written.scale != column.scale:
        return False
    return holds(written, column)


def widened_type(value: ice.IcebergType, column: ice.IcebergType) -> ice.IcebergType | None:
    """Return the narrowest type that a column can be widened to and that holds another type as well; all without parts.

    Returns:
        None if there is none: Iceberg promotes int to long, float to double, and raises a decimal's precision.
    """
    if isinstance(value, ice.DecimalType) and isinstance(column, ice.DecimalType):
        if value.scale > column.scale:
            return None
        precision = max(value.precision - value.scale, column.precision - column.scale) + column.scale
        return ice.DecimalType(precision, column.scale) if precision <= _MOST_DIGITS else None
    return value if promotes(column, value) else None


def still_fits(written: Schema, current: Schema) -> bool:
    """Return whether files that were written under one schema may be committed to a table that has another by now.

    True if every written field still exists, with the same or a promoted type, and nothing new is required.

    Args:
        written: The schema whose field ids the data files carry.
        current: The table's schema now.
    """
    before = index_by_id(written)
    now = index_by_id(current)
    return all(field_id in now and _reads(field, now[field_id]) for field_id, field in before.items()) and all(
        _is_null_without(field, before) for field in current.fields
    )


def _is_null_without(field: ice.NestedField, known: Container[int]) -> bool:
    """Return whether files without a column's new fields are read as null there; no part within a null is required."""
    if field.field_id not in known:
        return not field.required
    match field.field_type:
        case ice.StructType(fields=fields):
            return all(_is_null_without(each, known) for each in fields)
        case ice.ListType() as kind:
            return _is_null_without(kind.element_field, known)
        case ice.MapType() as kind:
            return _is_null_without(kind.key_field, known) and _is_null_without(kind.value_field, known)
        case _:
            return True


def _reads(written: ice.NestedField, current: ice.NestedField) -> bool:
    if current.required and not written.required:
        return False
    old, new = written.field_type, current.field_type
    # Children have ids of their own and are compared by them.
    return promotes(old, new) if old.is_primitive and new.is_primitive else type(old) is type(new)


def disagreements(rows: Schema, table: Schema, kafka: KafkaColumns) -> list[str]:
    """Return why rows cannot be written to this table as it is.

    A table column may be wider (int → long, float → double, a decimal with more digits before and after the point)
    and may accept null where the rows do not; optional columns that the rows lack stay null.

    Args:
        rows: Schema of the rows, without Kafka's columns.
        table: Schema of the table.
        kafka: Kafka's columns that the rows have, too.

    Returns:
        One sentence for each reason; empty if every row fits.
    """
    return [
        *_struct_disagreements(rows.as_struct(), table.as_struct(), "", kafka.names),
        *kafka_disagreements(table, kafka),
    ]


def kafka_disagreements(table: Schema, kafka: KafkaColumns) -> list[str]:
    """Return why a table cannot keep the source record of its rows, as sentences like those of `disagreements`."""
    columns, found, lacking = {field.name: field for field in table.fields}, list[str](), list[str]()
    for each in kafka.columns:
        column = columns.get(each.name)
        if column is None:
            lacking.append(each.name)
        elif not takes_kafka_column(each.type, column.field_type):
            needed = schema_text(each.type)
            found.append(
                f"Column {each.name} is {schema_text(column.field_type)} in the table, where {needed} is needed."
            )
    if lacking:
        found.append(f"The table lacks columns that name a row's record: {', '.join(lacking)}.")
    return found


def takes_kafka_column(kind: ice.IcebergType, column: ice.IcebergType) -> bool:
    """Return whether a column keeps the values of Kafka's column; that has no required part."""
    return holds(kind, column) if kind.is_primitive else schema_text(kind) == schema_text(column)


def _struct_disagreements(
    rows: ice.StructType, table: ice.StructType, prefix: str, filled: frozenset[str] = frozenset()
) -> list[str]:
    found: list[str] = []
    columns = {field.name: field for field in table.fields}
    by_case = {field.name.casefold(): field.name for field in table.fields}
    for field in rows.fields:
        path = prefix + field.name
        column = columns.get(field.name)
        if column is None:
            if other := by_case.get(field.name.casefold()):
                found.append(
                    f"Column {path} is declared, but the table calls it {prefix}{other}: names differ by case."
                )
            else:
                found.append(f"Column {path} is declared, but the table has no such column.")
            continue
        found += _field_disagreements(field, column, path)
    given = filled | {field.name for field in rows.fields}
    for column in table.fields:
        if column.required and column.name not in given:
            found.append(f"Column {prefix}{column.name} is required by the table, but it is not declared.")
    return found


def _field_disagreements(field: ice.NestedField, column_field: ice.NestedField, path: str) -> list[str]:
    found: list[str] = []
    if column_field.required and not field.required:
        found.append(f"Column {path} is required in the table, but declared without 'not null'.")
    value, column = field.field_type, column_field.field_type
    match value, column:
        case ice.StructType(), ice.StructType():
            return found + _struct_disagreements(value, column, path + ".")
        case ice.ListType(), ice.ListType():
            return found + _field_disagreements(value.element_field, column.element_field, path + ".element")
        case ice.MapType(), ice.MapType():
            found += _field_disagreements(value.key_field, column.key_field, path + ".key")
            return found + _field_disagreements(value.value_field, column.value_field, path + ".value")
        case ice.PrimitiveType(), ice.PrimitiveType() if holds(value, column):
            return found
        case _:
            return [
                *found,
                f"Column {path} is declared as {schema_text(value)}, but it is {schema_text(column)} in the table.",
            ]
