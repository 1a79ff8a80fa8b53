"""The stage that decodes: the values of records to typed columns."""

from __future__ import annotations

import pyarrow as pa

from jobs.formats.decoder import DECODE_VALUE, ValueDecoder
from jobs.pipeline.block import Block


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
        )

    def probe(self, block: Block) -> Block:
        """A record with the probe for its value."""
        value = pa.array([self._probe], pa.binary())
        return Block.of(pa.RecordBatch.from_arrays([value], ["value"]), block.destination)
