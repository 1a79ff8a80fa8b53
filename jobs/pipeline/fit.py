"""The stage that fits rows to a table: its columns and types, and where each row comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa

from jobs.formats.problems import ValueProblem
from jobs.pipeline.block import Block
from jobs.schema.table_schema import KAFKA_COLUMNS
from jobs.write.projection import UnfitValueError

Fit: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


class FitToTable:
    """Brings rows into the columns and types of the table that they are for.

    Args:
        fits: For each target, by name, what gives its rows; raises as `TableFit.apply` does.
        kafka_columns: Whether rows say where they came from.
    """

    name: str = "write"

    def __init__(self, fits: Mapping[str, Fit], *, kafka_columns: bool) -> None:
        self._fits: Mapping[str, Fit] = fits
        self._kafka_columns: bool = kafka_columns

    def apply(self, block: Block) -> Block:
        """The block with rows that its table holds as they are."""
        rows = _with_kafka_columns(block) if self._kafka_columns else block.rows
        try:
            return block.with_rows(self._fits[block.destination](rows))
        except UnfitValueError as problem:
            raise ValueProblem(problem.error_class, problem.message, f"$.{problem.path}") from None

    def probe(self, block: Block) -> Block:
        """No rows: a table that cannot hold even those holds no row of the stream."""
        return block.part(0, 0)


def _with_kafka_columns(block: Block) -> pa.RecordBatch:
    indices = None if block.is_whole else pa.array(block.positions)
    columns, fields = list(block.rows.columns), list(block.rows.schema)
    for name, _ in KAFKA_COLUMNS:
        column = block.records.column(name.removeprefix("_kafka_"))
        columns.append(column if indices is None else column.take(indices))
        fields.append(pa.field(name, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
