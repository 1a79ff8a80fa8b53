"""Block decoder of Avro: many records of one writer schema at a time; it gives what the reference decoder gives.

A block is taken only if each of its records is known to have been read from its first byte to its last
(`jobs.formats.avro.container`). Of any other the records that are not as their schema says are sought
(`jobs.formats.avro.misfits`) and the rest is read again; if that fails as well, it is halved. What is left goes to the
reference, so failures are always its own. So do records with a value that its logical type does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.avro.block_columns import convert, drop, struct_columns, together
from jobs.formats.avro.block_schema import NoBlocks, reading_schema
from jobs.formats.avro.container import LARGEST_BLOCK, UnreadableBlock, read_block
from jobs.formats.avro.misfits import misfits
from jobs.formats.avro.nodes import Node, Record
from jobs.formats.avro.options import AvroOptions
from jobs.formats.avro.reference import AvroReferenceDecoder
from jobs.formats.avro.schema import is_struct, top_node
from jobs.formats.decoder import Decoded
from jobs.formats.writer_schema import WriterSchema
from jobs.schema.arrow_schema import rows_arrow_schema

SMALLEST_BLOCK = 24
"""Records; the reference takes no longer for fewer."""

MOST_FAILED = 8
"""Reads of a block that may fail; what is left is the reference's then, which takes less time than further halves."""

Indices = npt.NDArray[np.int64]


class AvroBlockDecoder:
    """Decodes records of one writer schema as `AvroReferenceDecoder` does, whole blocks at a time.

    Args:
        node: The schema.
        smallest: Of how many records a block must be to be read as one.
    """

    def __init__(self, node: Node, *, smallest: int = SMALLEST_BLOCK) -> None:
        self._node: Node = node
        self._reference: AvroReferenceDecoder = AvroReferenceDecoder(node)
        self._arrow: pa.Schema = rows_arrow_schema(self._reference.schema)
        self._smallest: float = smallest
        try:
            self._reading, self._read = reading_schema(node)
        except NoBlocks:
            self._smallest = math.inf
        self._failed: int = 0

    @property
    def schema(self) -> Schema:
        """The fields of the records."""
        return self._reference.schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises."""
        parts: list[tuple[pa.RecordBatch, Indices]] = []
        left: list[Indices] = []
        self._failed = 0
        self._parts(values, np.arange(len(values)), parts, left)
        rest = np.sort(np.concatenate(left)) if left else np.zeros(0, np.int64)
        if not len(rest) and len(parts) == 1:
            rows, positions = parts[0]
            return Decoded(rows, positions, [], np.zeros(0, np.int64), {})
        others = self._reference.decode(values.take(pa.array(rest)))
        failures = [failure.at(int(rest[failure.row])) for failure in others.failures]
        parts.append((others.rows, rest[others.positions]))
        rows, positions = _merged([each for each in parts if len(each[1])] or parts[-1:])
        return Decoded(rows, positions, failures, np.zeros(0, np.int64), {})

    def _parts(
        self, values: pa.BinaryArray, indices: Indices, parts: list[tuple[pa.RecordBatch, Indices]], left: list[Indices]
    ) -> None:
        """Reads records; where that fails, those among them that fit their schema, and then halves.

        Args:
            values: The records.
            indices: Of each, in the whole block.
            parts: Rows that were read, with the indices of their records; added to.
            left: Indices of records that are left to the reference; added to.
        """
        count, failed = len(values), self._failed
        if failed >= MOST_FAILED:
            left.append(indices)
            return
        rows = self._rows(values) if count >= self._smallest else None
        if rows is not None:
            batch, refused = rows
            parts.append((batch, np.delete(indices, refused)))
            if len(refused):
                left.append(indices[refused])
            return
        if count < max(2, self._smallest):
            left.append(indices)
            return
        if failed == 0 < self._failed and (bad := misfits(self._node, values)).any():
            left.append(indices[bad])
            self._parts(values.filter(pa.array(~bad)), indices[~bad], parts, left)
            return
        half = count // 2
        self._parts(values.slice(0, half), indices[:half], parts, left)
        self._parts(values.slice(half), indices[half:], parts, left)

    def _rows(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, Indices] | None:
        """The rows of records, and the indices of those that the reference has to look at; None if one is bad."""
        if values.nbytes > LARGEST_BLOCK:
            return None
        try:
            read = read_block(self._reading, self._read, values)
        except UnreadableBlock:
            self._failed += 1
            return None
        kinds = [each.type for each in self._arrow]
        if isinstance(self._node, Record) and is_struct(self._node):
            columns = struct_columns(self._node, read.columns, kinds)
            return drop([each.array for each in columns], together(columns), self._arrow), together(columns)
        column = self._whole(read.column(0), kinds)
        arrays = [column.array] if not is_struct(self._node) else column.array.flatten()
        return drop(arrays, column.refused, self._arrow), column.refused

    def _whole(self, array: pa.Array, kinds: list[pa.DataType]) -> Any:
        """The column of a value that is no record."""
        kind = kinds[0] if not is_struct(self._node) else pa.struct(list(self._arrow))
        return convert(self._node, array, kind)


def _merged(parts: list[tuple[pa.RecordBatch, Indices]]) -> tuple[pa.RecordBatch, Indices]:
    """Rows in the order of their records."""
    rows, positions = parts[0]
    if len(parts) == 1:
        return rows, positions
    positions = np.concatenate([each for _, each in parts])
    order = np.argsort(positions)
    return pa.concat_batches([each for each, _ in parts]).take(pa.array(order)), positions[order]


def make_block(schema: WriterSchema, options: Mapping[str, Any]) -> AvroBlockDecoder:
    """The block decoder of a writer schema.

    Raises:
        BadWriterSchema: It cannot be read, or no column holds its records.
    """
    return AvroBlockDecoder(top_node(schema, AvroOptions.of(options)))
