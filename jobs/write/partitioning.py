"""Partition specs from a stream's expressions, and rows split by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from jobs.errors import FrazilError
from jobs.spec.partitioning import PartitionExpr

_SUFFIX = {"year": "_year", "month": "_month", "day": "_day", "hour": "_hour"}


class PartitionSpecError(FrazilError):
    """A partition expression does not fit the table's schema."""


def partition_spec(expressions: Sequence[PartitionExpr], schema: Schema) -> PartitionSpec:
    """The partition spec of a new table; fields are named as Spark's DDL names them.

    Args:
        expressions: In the order of the spec; none makes an unpartitioned table.
        schema: The table's schema; columns of structs are found by dotted names.

    Raises:
        PartitionSpecError: A column that does not exist, lies in a list or map, or has a type that the transform does
            not take; two fields of one name; two times of one column.
    """
    fields: list[PartitionField] = []
    names: set[str] = set()
    seen: dict[tuple[int, str], PartitionExpr] = {}
    for expression in expressions:
        transform, name = _transform(expression), _field_name(expression)
        source = _source(expression, schema)
        field = PartitionField(source.field_id, PARTITION_FIELD_ID_START + len(fields), transform, name)
        kind = "time" if expression.transform in _SUFFIX else str(transform)
        if (earlier := seen.get((source.field_id, kind))) is not None:
            raise PartitionSpecError(f"partition_by: '{expression}' repeats '{earlier}': one of them is enough")
        seen[source.field_id, kind] = expression
        if name in names:
            raise PartitionSpecError(f"partition_by: '{expression}' is a second partition field named '{name}'")
        try:
            validate_partition_name(name, transform, source.field_id, schema, names)
            PartitionSpec(field).check_compatible(schema)
        except (ValidationError, ValueError) as problem:
            raise PartitionSpecError(_reason(expression, source, problem)) from problem
        names.add(name)
        fields.append(field)
    return PartitionSpec(*fields)


def _transform(expression: PartitionExpr) -> Transform[Any, Any]:
    number = expression.argument or 0
    match expression.transform:
        case "identity":
            return IdentityTransform()
        case "year":
            return YearTransform()
        case "month":
            return MonthTransform()
        case "day":
            return DayTransform()
        case "hour":
            return HourTransform()
        case "bucket" | "truncate" if number < 1:
            raise PartitionSpecError(f"partition_by: '{expression}' needs a number of 1 or more")
        case "bucket":
            return BucketTransform(number)
        case "truncate":
            return TruncateTransform(number)


def _field_name(expression: PartitionExpr) -> str:
    match expression.transform:
        case "identity":
            return expression.column
        case "bucket":
            return f"{expression.column}_bucket"
        case "truncate":
            return f"{expression.column}_trunc"
        case _:
            return expression.column + _SUFFIX[expression.transform]


def _source(expression: PartitionExpr, schema: Schema) -> NestedField:
    try:
        return schema.find_field(expression.column)
    except ValueError as problem:
        alike = [name for name in schema.column_names if name.lower() == expression.column.lower()]
        hint = f"; did you mean '{alike[0]}'?" if alike else f"; it has {', '.join(schema.column_names)}"
        raise PartitionSpecError(
            f"partition_by: '{expression}' names the column '{expression.column}', which the schema does not have{hint}"
        ) from problem


def _reason(expression: PartitionExpr, source: NestedField, problem: Exception) -> str:
    kind = source.field_type
    if not kind.is_primitive:
        return f"partition_by: '{expression}': '{expression.column}' is a {kind}; only a primitive column can partition"
    if not _transform(expression).can_transform(kind):
        return f"partition_by: '{expression}': {expression.transform} does not take a {kind}"
    if "parent" in str(problem):
        return f"partition_by: '{expression}': '{expression.column}' lies in a list or a map, which cannot partition"
    return f"partition_by: '{expression}': {problem}"


def partition_key(values: Record | tuple[Any, ...]) -> tuple[object, ...]:
    """What tells partitions apart: -0.0 is another one than 0.0, as for Java's writers; Python takes them for equal.

    Readers that take the column from the partition would lose its sign otherwise.
    """
    each = (values[place] for place in range(len(values)))
    return tuple(repr(value) if isinstance(value, float) else value for value in each)


def split(batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema) -> list[tuple[Record, pa.RecordBatch]]:
    """Rows by partition, in the order in which partitions first appear; the order of rows is kept.

    Args:
        batch: Rows in the columns and types of `schema`, in its order.
        spec: Its partition fields.
        schema: The schema, of which `spec` names the field ids.

    Returns:
        Partition values in Iceberg's internal form (days, microseconds, bytes) with the rows that have them. The rows
        of different partitions share no memory, so that keeping those of one does not keep all.
    """
    if spec.is_unpartitioned() or batch.num_rows == 0:
        return [(Record(*[None] * len(spec.fields)), batch)] if batch.num_rows else []
    columns = [_partition_values(batch, field, schema).dictionary_encode("encode") for field in spec.fields]
    codes = columns[0].indices
    for column in columns[1:]:
        # Dense again after each field, so that the product never overflows.
        product = _numbers(codes) * len(column.dictionary) + _numbers(column.indices)
        codes = pa.array(product).dictionary_encode().indices
    numbers = _numbers(codes)
    count = int(numbers.max()) + 1
    if count == 1:
        return [(_record(columns, 0), batch)]
    # Codes count up from zero in the order of appearance; sorting sixteen bits is several times faster than more.
    order = np.argsort(numbers.astype(np.uint16) if count <= 2**16 else numbers, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1])
    return [(_record(columns, int(group[0])), batch.take(pa.array(group))) for group in groups]


def _numbers(codes: pa.Array) -> np.ndarray:
    return codes.to_numpy(zero_copy_only=False).astype(np.int64)


def _record(columns: Sequence[pa.DictionaryArray], row: int) -> Record:
    return Record(*[column.dictionary[column.indices[row].as_py()].as_py() for column in columns])


def _partition_values(batch: pa.RecordBatch, field: PartitionField, schema: Schema) -> pa.Array:
    """The values of one partition field, as Iceberg keeps them in manifests."""
    source = schema.find_field(field.source_id)
    values = column_at(batch, path_to(schema.as_struct(), field.source_id))
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(len(values), pa.int32())
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    values = field.transform.pyarrow_transform(source.field_type)(values)
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        # Python's own dates end with the year 9999; Iceberg's do not.
        return values.view(pa.int64())
    return values


def column_at(batch: pa.RecordBatch, path: Sequence[int]) -> pa.Array:
    """The values of a column that may lie in structs, by its positions (`path_to`)."""
    values = batch.column(path[0])
    for position in path[1:]:
        # Unlike the bare child, null where the struct is.
        values = values.flatten()[position]
    return values


def path_to(struct: StructType, field_id: int) -> list[int]:
    """Positions that lead to a field through structs; names cannot tell, as they may hold dots themselves."""
    for position, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return [position]
        if isinstance(field.field_type, StructType) and (inner := path_to(field.field_type, field_id)):
            return [position, *inner]
    return []
