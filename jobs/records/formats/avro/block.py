"""Block decoder of Avro for many records of one writer schema, with the same results as the reference decoder.

A block is accepted only if each record is proven to be read from its first byte to its last
(`jobs.records.formats.avro.container`). Otherwise the malformed records are searched, and the rest is read again; if
that fails, too, the block is bisected. The remaining records go to the reference decoder, so all failures come from it.
It also gets records with a value that its logical type cannot hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.avro.block_columns import (
    convert,
    drop,
    struct_columns,
    together,
)
from jobs.records.formats.avro.container import (
    LARGEST_BLOCK,
    NoBlocks,
    UnreadableBlock,
    read_block,
    reading_schema,
)
from jobs.records.formats.avro.nodes import (
    Array,
    Enum,
    Fixed,
    Json,
    Map,
    Node,
    Null,
    Plain,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.reference import AvroReferenceDecoder
from jobs.records.formats.avro.schema import is_struct, top_node
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.schema.arrow_schema import rows_arrow_schema

Mask = npt.NDArray[np.bool_]

MOST_ITEMS = 10_000
"""Limit of steps over values of lists and maps; records with more go to the reference decoder, which is faster."""

_LONGEST_NUMBER = 10
_BOUNDS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_SIZES = {"boolean": 1, "float": 4, "double": 8}
_SIZE_BOUNDS = (0, 2**63 - 1)


def misfits(node: Node, values: pa.BinaryArray) -> Mask:
    """Mask of malformed records: they end too early or too late, or have a number out of bounds, or invalid UTF-8.

    Good records with very long lists may be included.

    Args:
        node: The schema.
        values: Records; none is null.
    """
    steps = _Steps(values)
    steps.over(node, np.arange(len(values)))
    return steps.bad | (steps.at != steps.ends)


class _Steps:
    """Steps over the records of a block.

    Attributes:
        at: Position of each record's cursor, in the bytes of all records.
        ends: End of each record.
        bad: Mask of malformed records, which are not read further.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        # One more byte, which is read at the end of the last record.
        self._data: npt.NDArray[np.uint8] = np.append(np.frombuffer(data or b"", np.uint8), np.uint8(0))
        self.at: Indices = bounds[:-1].copy()
        self.ends: Indices = bounds[1:]
        self.bad: Mask = np.zeros(len(values), np.bool_)
        self._items: int = MOST_ITEMS
        self._beyond_ascii: Indices = np.flatnonzero(self._data >= 0x80)

    def over(self, node: Node, rows: Indices) -> None:
        """Step over a value in each of some records."""
        rows = self._good(rows)
        if not len(rows):
            return
        match node:
            case Null():
                pass
            case Plain("int" | "long" as name):
                self._numbers(rows, _BOUNDS[name])
            case Plain("bytes"):
                self._bytes(rows, self._numbers(rows, _SIZE_BOUNDS))
            case Plain("string"):
                self._text(rows, self._numbers(rows, _SIZE_BOUNDS))
            case Plain(name):
                self._bytes(rows, np.full(len(rows), _SIZES[name]))
            case Fixed(_, size):
                self._bytes(rows, np.full(len(rows), size))
            case Enum(_, symbols):
                self._numbers(rows, (0, len(symbols) - 1))
            case Record(_, fields):
                for each in fields:
                    self.over(each.node, rows)
            case Union(branches):
                which = self._numbers(rows, (0, len(branches) - 1))
                for number, branch in enumerate(branches):
                    self.over(branch.node, rows[which == number])
            case Array(items):
                self._blocks(rows, (items,))
            case Map(items):
                self._blocks(rows, (Plain("string"), items))
            case Within() | Json():
                raise AssertionError("no block has it")

    def _good(self, rows: Indices) -> Indices:
        return rows[~self.bad[rows]]

    def _blocks(self, rows: Indices, members: tuple[Node, ...]) -> None:
        """Step over lists: blocks of values, each preceded by its count, until a count of 0."""
        while len(rows):
            counts = self._numbers(rows, _BOUNDS["long"])
            sized = rows[counts < 0]
            self._numbers(sized, _SIZE_BOUNDS)
            counts = np.abs(counts)
            # The reference decoder handles values without bytes, and the one number whose negation overflows.
            self.bad[rows[(counts > self.ends[rows] - self.at[rows]) | (counts < 0)]] = True
            left = ~self.bad[rows] & (counts > 0)
            rows, counts = rows[left], counts[left]
            inside = rows
            while len(inside):
                self._items -= 1
                if self._items < 0:
                    self.bad[inside] = True
                for each in members:
                    self.over(each, inside)
                counts = counts - 1
                inside = rows[(counts > 0) & ~self.bad[rows]]
            rows = self._good(rows)

    def _numbers(self, rows: Indices, bounds: tuple[int, int]) -> Indices:
        """Step over a number in each of some records; return the numbers within bounds."""
        found, left = np.zeros(len(rows), np.uint64), np.arange(len(rows))
        at = self.at[rows]
        for place in range(_LONGEST_NUMBER):
            byte = self._data[np.minimum(at[left], len(self._data) - 1)]
            found[left] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at[left] += 1
            left = left[byte >= 0x80]
            if not len(left):
                break
        numbers = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
        bad = (at > self.ends[rows]) | (numbers < bounds[0]) | (numbers > bounds[1])
        bad[left] = True
        self.at[rows] = at
        self.bad[rows[bad]] = True
        return numbers

    def _bytes(self, rows: Indices, sizes: Indices) -> None:
        """Step over `sizes` bytes in each of some records."""
        fit = ~self.bad[rows] & (sizes <= self.ends[rows] - self.at[rows])
        self.at[rows[fit]] += sizes[fit]
        self.bad[rows[~fit]] = True

    def _text(self, rows: Indices, sizes: Indices) -> None:
        """Step over a text of `sizes` bytes in each of some records."""
        starts = self.at[rows]
        self._bytes(rows, sizes)
        begin, end = (np.searchsorted(self._beyond_ascii, each) for each in (starts, self.at[rows]))
        other = (begin < end) & ~self.bad[rows]
        for row, start in zip(rows[other].tolist(), starts[other].tolist(), strict=True):
            try:
                self._data[start : self.at[row]].tobytes().decode()
            except UnicodeDecodeError:
                self.bad[row] = True


SMALLEST_BLOCK = 24
"""Smallest number of records in a block; for fewer, the reference decoder is as fast."""

MOST_FAILED = 8
"""Limit of failed reads of a block; the reference decoder then gets the rest, because more bisections take longer."""

Indices = npt.NDArray[np.int64]


class AvroBlockDecoder:
    """Decodes records of one writer schema as `AvroReferenceDecoder` does, whole blocks at a time.

    Args:
        node: The schema.
        smallest: Smallest number of records that are read as a block.
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
        """Reads records; if that fails, first those that fit their schema, then each half.

        Args:
            values: The records.
            indices: Index of each record in the whole block.
            parts: Rows read so far, with the indices of their records; appended to.
            left: Indices of records that are left to the reference decoder; appended to.
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
        """Return records' rows, and the indices of those for the reference decoder; None if a record is malformed."""
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
        """Return the column of values that are no records."""
        kind = kinds[0] if not is_struct(self._node) else pa.struct(list(self._arrow))
        return convert(self._node, array, kind)


def _merged(parts: list[tuple[pa.RecordBatch, Indices]]) -> tuple[pa.RecordBatch, Indices]:
    """Merge rows in the order of their records."""
    rows, positions = parts[0]
    if len(parts) == 1:
        return rows, positions
    positions = np.concatenate([each for _, each in parts])
    order = np.argsort(positions)
    return pa.concat_batches([each for each, _ in parts]).take(pa.array(order)), positions[order]


def make_block(schema: WriterSchema, options: Mapping[str, Any]) -> AvroBlockDecoder:
    """Return the block decoder of a writer schema.

    Raises:
        BadWriterSchema: The schema cannot be read, or no column can hold its records.
    """
    return AvroBlockDecoder(top_node(schema, AvroOptions.of(options)))
