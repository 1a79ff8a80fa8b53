"""Decoders of JSON into types, created one at a time under a lock.

msgspec resolves a struct at its first use, in Python code, and publishes it before that is done. If another thread
decodes the same struct meanwhile, the process ends with a segmentation fault. So every type that threads decode is
resolved here.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_GUARD = threading.Lock()
_MADE: dict[Any, msgspec.json.Decoder[Any]] = {}


def typed_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a type, which is created once for each process; threads may share it."""
    made = _MADE.get(kind)
    if made is None:
        with _GUARD:
            made = _MADE.setdefault(kind, msgspec.json.Decoder(kind))
    return made


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """Decode a document into a value of a type.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: The document is damaged, or of another type.
    """
    return typed_decoder(kind).decode(content)
