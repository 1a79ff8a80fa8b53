"""Stages of a pipeline: what each is asked, and those that decode values and fit rows to a table."""

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
"""The stage that refuses a row which its table cannot hold, as dead letters call it."""


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


@runtime_checkable
class RowStage(Stage, Protocol):
    """A stage that makes rows of rows: the letter of a record that it refuses keeps the row as it was before."""

    def before(self, block: Block) -> str:
        """The first row of a block that the stage has not seen, as JSON for people."""
        ...


class DecodeValue:
    """Decodes the value of each record.

    Args:
        decoder: Of the values.
        probe: A value that a decoder of this format takes, if only to refuse it.
        named: Where a value's writer schema is named; the decoder takes what a header says of it, if one may.
        keep_tombstones: Whether a record without a value is a row of nulls, marked as gone, for the steps to say what
            it is; otherwise it is dropped.
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
        """A record with the probe for its value."""
        value = pa.array([self._probe], pa.binary())
        return Block.of(pa.RecordBatch.from_arrays([value], ["value"]), block.destination)


def _with_tombstones(decoded: Decoded) -> tuple[pa.RecordBatch, Indices, pa.BooleanArray]:
    """The rows with one of nulls for each record without a value, the record of each, and which those are."""
    positions = np.concatenate([decoded.positions, decoded.tombstones])
    order = np.argsort(positions, kind="stable")
    gone = order >= len(decoded.positions)
    indices = pa.array(np.where(gone, 0, order), pa.int64(), mask=gone)
    arrays = [each.take(indices) for each in decoded.rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=decoded.rows.schema), positions[order], pa.array(gone)


Fit: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


class FitToTable:
    """Brings rows into the columns and types of the table that they are for.

    Args:
        fits: For each target, by name, what gives its rows; raises as `TableFit.apply` does.
        kafka: The columns that rows have of Kafka's own.
        hide_values: Whether dead letters tell nothing of the row's values.
    """

    name: str = WRITE

    def __init__(self, fits: Mapping[str, Fit], *, kafka: KafkaColumns, hide_values: bool = True) -> None:
        self._fits: Mapping[str, Fit] = fits
        self._kafka: KafkaColumns = kafka
        self._hide_values: bool = hide_values

    def apply(self, block: Block) -> Block:
        """The block with rows that its table holds as they are."""
        rows = with_kafka_columns(block, self._kafka)
        try:
            return block.with_rows(self._fits[block.destination](rows))
        except UnfitValueError as problem:
            raise unfit(problem, hide_values=self._hide_values) from None

    def probe(self, block: Block) -> Block:
        """No rows: a table that cannot hold even those holds no row of the stream."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, without the columns of Kafka's own."""
        return row_json(block.rows, 0, hidden=self._hide_values)


def unfit(problem: UnfitValueError, *, hide_values: bool) -> ValueProblem:
    """The problem of a value that a table cannot hold; a masked one may stand under any name in a row."""
    message = untold(problem.message) if hide_values else problem.message
    return ValueProblem(problem.error_class, message, f"$.{problem.path}")


def with_kafka_columns(block: Block, kafka: KafkaColumns) -> pa.RecordBatch:
    """A block's rows with the columns that they have of Kafka's own.

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
        # Kafka's number, where dead letters have its name.
        return timestamp_types(records)
    column = records.column(part)
    # A letter of a record without headers has none; a record has a list of them in any case.
    return type(column).from_arrays(column.offsets, column.values) if part == "headers" else column
