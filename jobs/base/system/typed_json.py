"""Decoders of JSON into types, made one at a time, whichever thread is the first to need one.

msgspec resolves a struct at its first use, through Python code, and puts it in place before that is done. Another
thread that decodes the same struct meanwhile ends the process with a segmentation fault. So all that threads may decode
goes through here, and is resolved under one lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_GUARD = threading.Lock()
_MADE: dict[Any, msgspec.json.Decoder[Any]] = {}


def typed_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, which this process makes once; threads may share it."""
    made = _MADE.get(kind)
    if made is None:
        with _GUARD:
            made = _MADE.setdefault(kind, msgspec.json.Decoder(kind))
    return made


def decode_json(content: bytes | str, kind: type[T]) -> T:
    """A document as a value of a type.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: It is damaged, or of another type.
    """
    return typed_decoder(kind).decode(content)
