"""Canonical JSON: one text for each JSON value, so that equal values are equal texts.

No white space outside of strings; the keys of objects sorted by their code points; a key that comes twice with its last
value; in strings only what has to be escaped is (quotation mark, backslash, control characters), the rest is UTF-8; and
numbers as they were sent, for 1.0 and 1 are two texts, and any other rule would need a type of number. But for the
numbers, and keys beyond the first 65,536 code points, it is RFC 8785.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(value: bytes) -> bytes:
    """A JSON value in its canonical text.

    Args:
        value: One JSON value as it was sent, which a strict parser has taken: UTF-8, no halves of surrogate pairs.

    Raises:
        ValueError: It is no JSON value.
        RecursionError: It is nested too deep.
    """
    return _ENCODER.encode(_DECODER.decode(value.decode()))


def _number(text: str) -> Any:
    return msgspec.Raw(text.encode())


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


_DECODER = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_refuse)
