"""Decoders that tell what they are asked."""

from __future__ import annotations

import pyarrow as pa

from jobs.formats.decoder import Decoded
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.schema.declared import StructType


class CountingReference:
    """The reference decoder of JSON, with the number of records that it was asked for."""

    def __init__(self, declared: StructType) -> None:
        self.records: int = 0
        self._decoder: JsonReferenceDecoder = JsonReferenceDecoder(declared)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        self.records += len(values)
        return self._decoder.decode(values)
