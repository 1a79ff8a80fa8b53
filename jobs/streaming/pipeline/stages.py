"""Stages of a pipeline: their protocol, and the stages that decode values and fit rows to a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from jobs.records.formats.columns.text_values import refuse_beyond_years
from jobs.records.formats.interface.decoder import DECODE_VALUE, Decoded, ValueDecoder
from jobs.records.formats.interface.problems import ValueProblem, untold
from jobs.records.formats.record_columns import SchemaIdPlace
from jobs.records.formats.registry_wire import VALUE_HEADER, VALUE_SCHEMA_ID
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.transforms.frame import timestamp_types
from jobs.records.transforms.row_json import row_json
from jobs.streaming.pipeline.block import Block, Indices
from jobs.streaming.pipeline.record_stages import headed_decode, with_subject
from jobs.tables.write.projection import UnfitValueError

WRITE = "write"
"""Name of the stage in dead letters, for a row that its table cannot hold."""


class Stage(Protocol):
    """One step of records on their way to a table."""

    @property
    def name(self) -> str:
        """Name in dead letters."""
        ...

    def apply(self, block: Block) -> Block:
        """The block after the stage, for a block with rows.

        Raises:
            ValueProblem: A record is at fault, and the stage does not know which one.
            OSError, MemoryError: The machine or the network failed.
            ProjectionError: The table cannot hold any row of this stream.
        """
        ...

    def probe(self, block: Block) -> Block:
        """A block that a working stage takes.

        Args:
            block: A block for which it has failed; other blocks may have other columns.
        """
        ...


@runtime_checkable
class RowStage(Stage, Protocol):
    """Stage from rows to rows: the dead letter of a refused record keeps the row before the stage."""

    def before(self, block: Block) -> str:
        """The first row of a block before the stage, as JSON for people."""
        ...


class DecodeValue:
    """Decodes the value of each record.

    Args:
        decoder: Decoder of the values.
        probe: A value that a decoder of this format accepts or refuses without failing itself.
        named: Place of a value's schema id; the decoder takes it from a header, if one may have it.
        keep_tombstones: Whether a record without a value is a row of nulls, marked as gone, which the steps handle;
            otherwise it is dropped.
    """

    name: str = DECODE_VALUE

    def __init__(
        self, decoder: ValueDecoder, probe: bytes, *, named: SchemaIdPlace = "prefix", keep_tombstones: bool = False
    ) -> None:
        self._named: SchemaIdPlace = named
        self._keep_tombstones: bool = keep_tombstones
        self._decoder: ValueDecoder = decoder
        self._probe: bytes = probe

    def apply(self, block: Block) -> Block:
        """The block with the decoded rows; records without a value are dropped."""
        decode = headed_decode(self._decoder, block.rows, VALUE_HEADER, VALUE_SCHEMA_ID, self._named)
        decoded = decode(block.rows.column("value"))
        rows, positions, dropped, gone = decoded.rows, decoded.positions, decoded.tombstones, None
        if self._keep_tombstones and len(dropped):
            rows, positions, gone = _with_tombstones(decoded)
            dropped = dropped[:0]
        return block.with_rows(
            rows,
            positions,
            failures=[with_subject(failure, block, "value") for failure in decoded.failures],
            dropped=dropped,
            unknown_fields=decoded.unknown_fields,
            needs=decoded.needs,
            undecided=decoded.undecided,
            changed={},
            gone=gone,
        )

    def probe(self, block: Block) -> Block:
        """A record with the probe as its value."""
        value = pa.array([self._probe], pa.binary())
        return Block.of(pa.RecordBatch.from_arrays([value], ["value"]), block.destination)


def _with_tombstones(decoded: Decoded) -> tuple[pa.RecordBatch, Indices, pa.BooleanArray]:
    """Rows, with a row of nulls for each record without a value; the record of each; and the marks of those rows."""
    positions = np.concatenate([decoded.positions, decoded.tombstones])
    order = np.argsort(positions, kind="stable")
    gone = order >= len(decoded.positions)
    indices = pa.array(np.where(gone, 0, order), pa.int64(), mask=gone)
    arrays = [each.take(indices) for each in decoded.rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=decoded.rows.schema), positions[order], pa.array(gone)


Fit: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


class FitToTable:
    """Converts rows to the columns and types of their table.

    Args:
        fits: Function by target name that converts rows for it; raises as `TableFit.apply` does.
        kafka: Kafka's columns of the rows.
        hide_values: Whether dead letters contain no values of the rows.
    """

    name: str = WRITE

    def __init__(self, fits: Mapping[str, Fit], *, kafka: KafkaColumns, hide_values: bool = True) -> None:
        self._fits: Mapping[str, Fit] = fits
        self._kafka: KafkaColumns = kafka
        self._hide_values: bool = hide_values

    def apply(self, block: Block) -> Block:
        """The block with rows in its table's form."""
        rows = with_kafka_columns(block, self._kafka)
        try:
            return block.with_rows(self._fits[block.destination](rows))
        except UnfitValueError as problem:
            raise unfit(problem, hide_values=self._hide_values) from None

    def probe(self, block: Block) -> Block:
        """No rows: a table that cannot hold even these holds no row of the stream."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, without Kafka's columns."""
        return row_json(block.rows, 0, hidden=self._hide_values)


def unfit(problem: UnfitValueError, *, hide_values: bool) -> ValueProblem:
    """Problem of a value that a table cannot hold; a masked value may be under any name in a row."""
    message = untold(problem.message) if hide_values else problem.message
    return ValueProblem(problem.error_class, message, f"$.{problem.path}")


def with_kafka_columns(block: Block, kafka: KafkaColumns) -> pa.RecordBatch:
    """A block's rows with Kafka's columns.

    Raises:
        ValueProblem: A row has a time beyond the years 0001 to 9999.
    """
    for name, values in zip(block.rows.schema.names, block.rows.columns, strict=True):
        refuse_beyond_years(values, f"$.{name}")
    if not kafka.columns:
        return block.rows
    indices = None if block.is_whole else pa.array(block.positions)
    columns, fields = list(block.rows.columns), list(block.rows.schema)
    for part, name in kafka.columns:
        if part in ("key", "headers") and part in block.changed:
            column = block.changed[part]
        else:
            column = _part(block.records, part)
            column = column if indices is None else column.take(indices)
        columns.append(column)
        fields.append(pa.field(name, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _part(records: pa.RecordBatch, part: str) -> pa.Array:
    if part == "timestamp_type" and part not in records.schema.names:
        # Kafka's number; dead letters have its name.
        return timestamp_types(records)
    column = records.column(part)
    # A dead letter of a record without headers has none; a record always has a list of them.
    return type(column).from_arrays(column.offsets, column.values) if part == "headers" else column
