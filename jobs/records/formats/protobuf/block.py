"""Block decoder of Protobuf: many records at a time; it gives what the reference decoder gives.

A message without lists and maps is walked along with the others of its block (jobs.records.formats.protobuf.wire_walk),
and accepted if every byte of it is accounted for. For any other message ptars reads the block into Arrow by its wire
message (jobs.records.formats.protobuf.wire_walk), and writes the same columns as records again: a record is accepted
only if the written bytes equal the sent ones. So in both ways nothing was dropped, cut, merged or misread. Two fields
of a oneof, a map's key that comes twice, and the meaning of values (jobs.records.formats.protobuf.block_columns) do not
show in the bytes; they are checked in whole columns. All other records, whether bad or only written in another order,
are decoded by the reference, so failures are always its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.writer_schema import WriterSchema
from jobs.records.formats.protobuf.block_columns import BlockColumns
from jobs.records.formats.protobuf.compile import message_of
from jobs.records.formats.protobuf.message_tree import Message, has_groups
from jobs.records.formats.protobuf.options import rules_of
from jobs.records.formats.protobuf.reference import ProtobufReferenceDecoder
from jobs.records.formats.protobuf.schema import message_tree
from jobs.records.formats.protobuf.wire_walk import WireWalk, walkable, wire_message
from jobs.records.schema.arrow_schema import rows_arrow_schema

SMALLEST_BLOCK = 64
"""Records in a block; the reference is as fast for fewer."""

_LARGEST_BLOCK = 1 << 30
_CHUNK = 64


def protobuf_block(schema: WriterSchema, options: Mapping[str, Any]) -> ProtobufBlockDecoder:
    """Return the block decoder of a writer schema.

    Raises:
        BadWriterSchema: The schema is invalid, or its records have no columns.
    """
    rules = rules_of(options)
    return ProtobufBlockDecoder(message_tree(message_of(schema), rules), refuse_unknown=rules.unknown_fields == "fail")


class ProtobufBlockDecoder:
    """Decode the records of one message as `ProtobufReferenceDecoder` does, whole blocks at a time.

    Args:
        tree: The message.
        refuse_unknown: Whether a record with a field that the message does not declare is refused.
        smallest: Smallest number of records that are read as one block.
    """

    def __init__(self, tree: Message, *, refuse_unknown: bool = False, smallest: int = SMALLEST_BLOCK) -> None:
        self._reference: ProtobufReferenceDecoder = ProtobufReferenceDecoder(tree, refuse_unknown=refuse_unknown)
        self._tree: Message = tree
        self._arrow: pa.Schema = rows_arrow_schema(self._reference.schema)
        self._walkable: bool = walkable(tree)
        self._smallest: int = max(smallest, 1)
        self._handler: Any = None
        # Neither the walk nor ptars reads groups.
        if not has_groups(tree):
            message = wire_message(tree, nested=False)
            config = ptars.PtarsConfig(list_value_name="element")
            self._handler = ptars.HandlerPool([message.file], config=config).get_for_message(message)

    @property
    def schema(self) -> Schema:
        """Return the columns of the message."""
        return self._reference.schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: The message of each record, without the id of its schema.
        """
        if self._handler is None or len(values) < self._smallest or values.nbytes > _LARGEST_BLOCK:
            return self._reference.decode(values)
        if self._walkable:
            walk = WireWalk(values)
            read, parsed, good = np.arange(len(values)), walk.read(self._tree), walk.good
        else:
            read, parsed, good = self._proven(values)
        if not len(read):
            return self._reference.decode(values)
        columns = BlockColumns(parsed.num_rows)
        arrays = columns.message(self._tree, parsed, self._arrow)
        good &= ~columns.doubtful
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        if not good.all():
            rows, read = rows.filter(pa.array(good)), read[good]
        return self._whole(rows, read, values)

    def _proven(self, values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Return the records that ptars reads, their fields, and a mask of those that it writes back unchanged."""
        read, parsed = self._parsed(values)
        taken = values if len(read) == len(values) else values.take(pa.array(read))
        written = self._handler.record_batch_to_array(parsed)
        if written.equals(taken):
            return read, parsed, np.ones(len(read), np.bool_)
        return read, parsed, pc.equal(written, taken).to_numpy(zero_copy_only=False).copy()

    def _whole(self, rows: pa.RecordBatch, read: npt.NDArray[np.int64], values: pa.BinaryArray) -> Decoded:
        none = np.zeros(0, np.int64)
        if len(read) == len(values):
            return Decoded(rows, read, [], none, {})
        left = np.setdiff1d(np.arange(len(values)), read, assume_unique=True)
        others = self._reference.decode(values.take(pa.array(left)))
        failures = [failure.at(int(left[failure.row])) for failure in others.failures]
        if others.rows.num_rows:
            positions = np.concatenate([read, left[others.positions]])
            order = np.argsort(positions)
            rows = pa.concat_batches([rows, others.rows]).take(pa.array(order))
            read = positions[order]
        return Decoded(rows, read, failures, none, others.unknown_fields)

    def _parsed(self, values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """Return the records that ptars reads, and their fields."""
        every = np.arange(len(values))
        if (parsed := self._parse(values)) is not None:
            return every, parsed
        read = np.array([row for row, one in enumerate(values.to_pylist()) if self._reference.parses(one)], np.int64)
        if (parsed := self._parse(values.take(pa.array(read)))) is not None:
            return read, parsed
        # Google's parser also reads groups, but ptars does not.
        chunks = [read[first : first + _CHUNK] for first in range(0, len(read), _CHUNK)]
        sound = [chunk for chunk in chunks if self._parse(values.take(pa.array(chunk))) is not None]
        read = np.concatenate([every[:0], *sound])
        return read, self._handler.array_to_record_batch(values.take(pa.array(read)))

    def _parse(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """Return the fields that ptars reads; None if it does not read one of the records."""
        try:
            return self._handler.array_to_record_batch(values)
        except ValueError:
            return None
        except BaseException as error:
            # A panic, such as over a length near 2^64, is no Exception, and has no name that could be imported.
            if type(error).__name__ != "PanicException":
                raise
            return None
