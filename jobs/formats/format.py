"""A format: who decodes the values that are written in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from jobs.formats.decoder import UnknownField, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec

MakeDecoder: TypeAlias = Callable[[DecoderSpec], ValueDecoder]
FindUnknown: TypeAlias = Callable[[DecoderSpec, pa.BinaryArray, Iterable[int], Iterable[str]], dict[str, UnknownField]]


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which values can be written.

    Attributes:
        name: What `decode.value` says.
        reference: Makes the decoder that says what a value means.
        block: Makes the decoder for blocks of many records; it gives what the reference gives.
        probe: A value that the decoders take, if only to refuse it: one that raises for it can decode nothing.
        unknown_fields: Finds, in values, fields that the schema does not name: in these rows, by their paths as
            `Decoded.unknown_fields` has them. Of a path none may be found.
    """

    name: str
    reference: MakeDecoder
    block: MakeDecoder
    probe: bytes
    unknown_fields: FindUnknown
