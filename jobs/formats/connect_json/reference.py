"""Reference decoder of Connect's JSON: what an enveloped record means, one record at a time.

The value is an envelope of a schema and a payload, or it fails. A null value is a tombstone; nothing else is one. With
the option `schema.content` a value that is no envelope is a payload of that schema.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.formats.connect_json.payloads import SCHEMA_CONTENT, Envelope, Payloads, read_envelope
from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure
from jobs.formats.decoder_spec import DecoderSpec
from jobs.formats.problems import ValueProblem
from jobs.formats.writer_groups import merged


class Enveloped(NamedTuple):
    """Payloads of one schema, and the rows that they are of."""

    payloads: list[bytes]
    rows: list[int]


class ConnectJsonReferenceDecoder:
    """Decodes records in the envelope of Connect's JsonConverter.

    Args:
        spec: With the stream's columns and the format's options.
    """

    def __init__(self, spec: DecoderSpec) -> None:
        content: str | None = spec.options.get(SCHEMA_CONTENT)
        self._content: bytes | None = None if content is None else content.encode()
        self._payloads: Payloads = Payloads(spec, block=False)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        groups: dict[bytes, Enveloped] = {}
        failures: list[Failure] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                schema, payload = self.envelope(value)
            except ValueProblem as problem:
                failures.append(Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field))
                continue
            group = groups.setdefault(schema, Enveloped([], []))
            group.payloads.append(payload)
            group.rows.append(row)
        parts: list[Decoded] = []
        for schema, group in groups.items():
            rows = np.array(group.rows, np.int64)
            part, refused = self._payloads.decode(schema, pa.array(group.payloads, pa.binary()), rows)
            parts.append(part)
            failures += refused
        tombstones = np.flatnonzero(np.asarray(values.is_null())).astype(np.int64)
        return merged(parts, failures, tombstones, self._payloads.schema)

    def envelope(self, value: bytes) -> Envelope:
        """Schema and payload of a record.

        Raises:
            ValueProblem: It has none.
        """
        try:
            return read_envelope(value)
        except ValueProblem:
            if self._content is None:
                raise
        # What is wrong with a plain payload, its own decoder says.
        return Envelope(self._content, value)
