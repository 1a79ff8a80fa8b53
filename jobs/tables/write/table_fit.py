"""Fit of rows to a table: its columns and types, and a partition for each row."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.tables.write.partition_limits import PartitionLimit, partition_limits
from jobs.tables.write.projection import ProjectionError, projected
from jobs.tables.write.pyiceberg_files import arrow_schema_in_files, schema_in_files


class TableFit:
    """Converts batches with a table's column names into batches that its data files hold unchanged.

    Rows that a commit would refuse are refused here.

    Attributes:
        file_schema: Schema with the names used in files.
        target: Arrow schema of the files, with Iceberg's field ids.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> None:
        self.file_schema: Schema = schema_in_files(schema)
        self.target: pa.Schema = arrow_schema_in_files(self.file_schema)
        self._columns: tuple[NestedField, ...] = schema.fields
        self._known: frozenset[str] = frozenset(column.name for column in schema.fields)
        self._checked: pa.Schema | None = None
        self._limits: tuple[PartitionLimit, ...] = partition_limits(spec, schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the table's columns; missing optional ones are null. Copies nothing that fits already.

        Raises:
            ProjectionError: The table lacks a column or cannot hold its type.
            UnfitValueError: Some rows do not fit: a null in a required column, a value beyond the column's range, or
                one without a partition value.
        """
        self._check_names(batch.schema)
        arrays: list[pa.Array] = []
        for column, target in zip(self._columns, self.target, strict=True):
            index = batch.schema.get_field_index(column.name)
            values = batch.column(index) if index >= 0 else None
            arrays.append(projected(values, column.field_type, target, column.name, batch.num_rows))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.target)
        for limit in self._limits:
            limit.refuse_outside(rows)
        return rows

    def _check_names(self, schema: pa.Schema) -> None:
        if schema is self._checked or (self._checked is not None and schema.equals(self._checked)):
            return
        names = schema.names
        if unknown := sorted(set(names) - self._known):
            raise ProjectionError(f"the table has no column {', '.join(f'`{name}`' for name in unknown)}")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ProjectionError(f"the rows have the column {', '.join(f'`{name}`' for name in twice)} twice")
        self._checked = schema
