"""Records of Connect's JSON: payloads in the envelope with their schema, or plain where the stream's file has it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from jobs.formats.problems import BAD_ENVELOPE, BAD_SCHEMA
from jobs.generate.json_records import JsonGenerator


class ConnectGenerator:
    """Makes values.

    Args:
        payloads: Makes what is within the envelope.
        schema: JSON of the payloads' schema, in Connect's words.
        enveloped: Whether values are envelopes.
    """

    def __init__(self, payloads: JsonGenerator, schema: str, *, enveloped: bool) -> None:
        self._payloads: JsonGenerator = payloads
        self._schema: bytes = schema.encode()
        self._enveloped: bool = enveloped
        own = {"bad_envelope": BAD_ENVELOPE, "bad_schema": BAD_SCHEMA} if enveloped else {}
        self.bad_kinds: Mapping[str, str] = {**payloads.bad_kinds, **own}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands."""
        return self._within(self._payloads.good(rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter of this kind."""
        match kind:
            case "bad_envelope":
                return b'{"payload":' + self._payloads.good(rng, at) + b"}"
            case "bad_schema":
                return envelope(b'{"type":"int33"}', self._payloads.good(rng, at))
            case "empty_value":
                return b""
            case "truncated_json" if self._enveloped:
                value = self.good(rng, at)
                return value[: rng.randrange(1, len(value))]
            case _:
                return self._within(self._payloads.bad(kind, rng, at))

    def _within(self, payload: bytes) -> bytes:
        return envelope(self._schema, payload) if self._enveloped else payload


def envelope(schema: bytes, payload: bytes) -> bytes:
    """A record as Connect's JsonConverter writes it."""
    return b'{"schema":' + schema + b',"payload":' + payload + b"}"
