"""Avro records of a stream: good ones, and bad ones that have a name."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from pyiceberg import types as ice

from jobs.formats.problems import EMPTY_VALUE, INVALID_UTF8, MALFORMED_AVRO
from jobs.generate.record import FIRST_TIME
from jobs.generate.row_records import RowGenerator
from jobs.generate.shape import Leaf


class AvroGenerator:
    """Makes records of an Avro schema, without their id.

    Args:
        rows: Makes them of rows.
    """

    def __init__(self, rows: RowGenerator) -> None:
        self._rows: RowGenerator = rows
        self._texts: tuple[str, ...] = tuple(
            each.name
            for each in rows.encoder.shape.members
            if isinstance(each.shape, Leaf) and isinstance(each.shape.type, ice.StringType) and not each.shape.values
        )
        kinds = {"surplus_bytes": MALFORMED_AVRO, "empty_value": EMPTY_VALUE}
        # A record that is always of one byte, such as a boolean, cannot be cut.
        if any(len(rows.good(random.Random(number), FIRST_TIME)) > 1 for number in range(8)):
            kinds["truncated_avro"] = MALFORMED_AVRO
        kinds |= {"invalid_utf8": INVALID_UTF8} if self._texts and not rows.encoder.shape.one else {}
        self.bad_kinds: Mapping[str, str] = {**kinds, **self._rows.bad_kinds}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A record that lands."""
        return self._rows.good(rng, at)

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A record that becomes a dead letter of this kind."""
        if kind in self._rows.bad_kinds:
            return self._rows.bad(kind, rng, at)
        match kind:
            case "empty_value":
                return b""
            case "invalid_utf8":
                marker = f"{rng.getrandbits(128):032x}"
                made = self._rows.encoder.encode(self._rows.row(rng, at) | {rng.choice(self._texts): marker})
                return made.replace(marker.encode(), b"\xff" + marker[1:].encode())
            case "surplus_bytes":
                return self.good(rng, at) + rng.randbytes(rng.randrange(1, 4))
            case _:
                # No record begins with another one; one of a byte begins with the type of a union, which goes on here.
                whole = self.good(rng, at)
                return whole[: rng.randrange(1, len(whole))] if len(whole) > 1 else b"\x80"
