"""Primitive records: one text, some bytes, or one number of fixed width, as Kafka's own serializers write it."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from datetime import datetime

from jobs.formats.problems import INVALID_UTF8, WRONG_LENGTH
from jobs.generate.rows import text_of

_PACKED = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}


class PrimitiveGenerator:
    """Makes values of a primitive format.

    Args:
        kind: The format's name.
        column: The name of the one column.
    """

    def __init__(self, kind: str, column: str) -> None:
        self._kind: str = kind
        self._column: str = column
        kinds = {"string": {"invalid_utf8": INVALID_UTF8}, "bytes": {}}
        self.bad_kinds: Mapping[str, str] = kinds.get(kind, {"wrong_length": WRONG_LENGTH})

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands."""
        match self._kind:
            case "string":
                return text_of(self._column, rng).encode()
            case "bytes":
                return rng.randbytes(rng.randrange(1, 64))
            case "boolean":
                return bytes([rng.randrange(2)])
            case "float" | "double":
                return struct.pack(_PACKED[self._kind], rng.randrange(-4_000_000, 4_000_000) / 256)
            case _:
                return struct.pack(_PACKED[self._kind], rng.randrange(10_000))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """Bytes that are no UTF-8, or too few or too many of them."""
        if kind == "invalid_utf8":
            return b"\xff" + self.good(rng, at)
        value = self.good(rng, at)
        return rng.choice((value[:-1], value + b"\0"))
