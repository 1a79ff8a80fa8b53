"""Partition specs of tables, from a stream's expressions, and rows split by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

from jobs.base.errors import FrazilError
from jobs.config.values.partitioning import PartitionExpr


class PartitionSpecError(FrazilError):
    """A partition expression does not fit the table's columns.

    Safe: Nothing was changed.
    Next: correct `table.partition_by`; then `frazil validate`
    """


def partition_spec(expressions: Sequence[PartitionExpr], schema: Schema) -> PartitionSpec:
    """The partition spec of a new table.

    Args:
        expressions: Expressions in the order of the spec, checked by `jobs.config.values.partitioning`; none makes an
            unpartitioned table.
        schema: The table's schema; columns in structs have dotted names.

    Raises:
        PartitionSpecError: Two fields have one name, or a field has the name of another column.
    """
    fields: list[PartitionField] = []
    for expression in expressions:
        argument = "" if expression.argument is None else f"[{expression.argument}]"
        transform = parse_transform(f"{expression.transform}{argument}")
        name = expression.field_name
        if any(field.name == name for field in fields):
            raise PartitionSpecError(f"partition_by: '{expression}' is a second partition field named '{name}'")
        try:
            source_id = schema.find_field(expression.column).field_id
            field = PartitionField(source_id, PARTITION_FIELD_ID_START + len(fields), transform, name)
            PartitionSpec(field).check_compatible(schema)
        except (ValidationError, ValueError) as problem:
            raise PartitionSpecError(f"partition_by: '{expression}': {problem}") from problem
        try:
            validate_partition_name(name, transform, source_id, schema, set())
        except ValueError:
            other = replace(expression, name="NAME")
            raise PartitionSpecError(
                f"partition_by: '{expression}': its partition field would have the name of column {name}",
                fix=f"name the partition field otherwise: '{other}'",
            ) from None
        fields.append(field)
    return PartitionSpec(*fields)


def partition_texts(spec: PartitionSpec, schema: Schema) -> list[str]:
    """Fields of a partition spec as written in a stream's file, such as `day(created_at)`; dropped ones are left out.

    Names and ids of the fields are not included.
    """
    fields: list[str] = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"field {field.source_id}"
        transform = str(field.transform)
        if transform == "void":
            continue
        fields.append(column if transform == "identity" else f"{transform}({column})")
    return fields


def partition_key(values: Record | tuple[Any, ...]) -> tuple[object, ...]:
    """Key of a partition: -0.0 is another one than 0.0, as for Java's writers; Python compares them as equal.

    Otherwise readers that take the column from the partition would lose the sign.
    """
    each = (values[place] for place in range(len(values)))
    return tuple(repr(value) if isinstance(value, float) else value for value in each)


def split_by_partition(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema
) -> list[tuple[Record, pa.RecordBatch]]:
    """Rows by partition, in the order of first appearance; rows keep their order.

    Args:
        batch: Rows with the columns, types and order of `schema`.
        schema: Schema with the field ids of `spec`.

    Returns:
        Partition values in Iceberg's internal form (days, microseconds, bytes), with their rows. Rows of different
        partitions share no memory, so that holding one partition does not hold all.
    """
    if spec.is_unpartitioned() or batch.num_rows == 0:
        return [(Record(*[None] * len(spec.fields)), batch)] if batch.num_rows else []
    columns = [partition_values(batch, field, schema).dictionary_encode("encode") for field in spec.fields]
    codes = columns[0].indices
    for column in columns[1:]:
        # Dense codes after each field keep the product from overflowing.
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


def partition_values(batch: pa.RecordBatch, field: PartitionField, schema: Schema) -> pa.Array:
    """Values of one partition field in Iceberg's internal form."""
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
        # Python's dates end with the year 9999; Iceberg's do not.
        return values.view(pa.int64())
    return values


def column_at(batch: pa.RecordBatch, path: Sequence[int]) -> pa.Array:
    """Values of a partition's source column, possibly in structs, by its positions (`path_to`)."""
    values = batch.column(path[0])
    for position in path[1:]:
        # Unlike the bare child, the result is null wherever the struct is null.
        values = values.flatten()[position]
    return values


def path_to(struct: StructType, field_id: int) -> list[int]:
    """Positions of a partition's source field through structs; names would not do, as they may contain dots."""
    for position, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return [position]
        if isinstance(field.field_type, StructType) and (inner := path_to(field.field_type, field_id)):
            return [position, *inner]
    return []
