"""Stages of a pipeline: what each is asked, and those that decode values and fit rows to a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import pyarrow as pa

from jobs.formats.decoder import DECODE_VALUE, ValueDecoder
from jobs.formats.problems import ValueProblem
from jobs.pipeline.block import Block
from jobs.schema.iceberg_schema import KAFKA_COLUMNS
from jobs.write.projection import UnfitValueError


class Stage(Protocol):
    """One step of records on their way to a table."""

    @property
    def name(self) -> str:
        """What dead letters call it."""
        ...

    def apply(self, block: Block) -> Block:
        """The block behind the stage, of a block with rows.

        Raises:
            ValueProblem: A record is at fault, and the stage does not know which.
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold rows of this stream at all.
        """
        ...

    def probe(self, block: Block) -> Block:
        """A block that the stage takes unless it can do nothing at all.

        Args:
            block: One that it has failed for; of another one it may have other columns.
        """
        ...


class DecodeValue:
    """Decodes the value of each record.

    Args:
        decoder: Of the values.
        probe: A value that a decoder of this format takes, if only to refuse it.
    """

    name: str = DECODE_VALUE

    def __init__(self, decoder: ValueDecoder, probe: bytes) -> None:
        self._decoder: ValueDecoder = decoder
        self._probe: bytes = probe

    def apply(self, block: Block) -> Block:
        """The block with the decoded rows; records without a value are dropped."""
        decoded = self._decoder.decode(block.rows.column("value"))
        return block.with_rows(
            decoded.rows,
            decoded.positions,
            failures=decoded.failures,
            dropped=decoded.tombstones,
            unknown_fields=decoded.unknown_fields,
            needs=decoded.needs,
        )

    def probe(self, block: Block) -> Block:
        """A record with the probe for its value."""
        value = pa.array([self._probe], pa.binary())
        return Block.of(pa.RecordBatch.from_arrays([value], ["value"]), block.destination)


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
