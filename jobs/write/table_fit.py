"""Rows as a table can hold them: in its columns, and each with a place in its partitions."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from jobs.write.partition_limits import PartitionLimit, partition_limits
from jobs.write.projection import Projection


class TableFit:
    """What rows have to pass before they go to a table's files. Whatever a commit would refuse is refused here.

    Args:
        schema: The table's schema.
        spec: The partition spec that its new files have.

    Attributes:
        projection: To the table's columns and types.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self.projection: Projection = Projection(schema)
        self._limits: tuple[PartitionLimit, ...] = partition_limits(spec, schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the table's columns.

        Raises:
            ProjectionError: As `Projection.apply` raises it.
            UnfitValueError: Of some rows only; as `Projection.apply`, and for a value without a partition value.
        """
        rows = self.projection.apply(batch)
        for limit in self._limits:
            limit.refuse_outside(rows)
        return rows
