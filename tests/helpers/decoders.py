"""Decoders that tell what they are asked."""

from __future__ import annotations

import pyarrow as pa

from jobs.formats.decoder import Decoded
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.schema.declared import StructType
from jobs.schema.name_matching import EXACT_NAMES, NameRule


class CountingReference:
    """The reference decoder of JSON, with the number of records that it was asked for."""

    def __init__(self, declared: StructType, names: NameRule = EXACT_NAMES) -> None:
        self.records: int = 0
        self._decoder: JsonReferenceDecoder = JsonReferenceDecoder(declared, names=names)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        self.records += len(values)
        return self._decoder.decode(values)
