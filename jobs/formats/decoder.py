"""The seam between the data plane and a way of decoding."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from jobs.formats.outcome import Decoded


class ValueDecoder(Protocol):
    """Decodes a block of Kafka values. Every decoder of one schema must give what the reference decoder gives."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        ...
