"""Decoders that tell what they are asked."""

from __future__ import annotations

import pyarrow as pa

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.declared import StructType
from jobs.records.schema.name_matching import EXACT_NAMES, NameRule


class CountingReference:
    """The reference decoder of JSON, with the number of records that it was asked for."""

    def __init__(self, declared: StructType, names: NameRule = EXACT_NAMES) -> None:
        self.records: int = 0
        self._decoder: JsonReferenceDecoder = JsonReferenceDecoder(declared, names=names)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        self.records += len(values)
        return self._decoder.decode(values)
