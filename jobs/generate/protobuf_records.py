"""Protobuf records of a stream: good ones, and bad ones that have a name."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from jobs.formats.problems import INVALID_UTF8, MALFORMED_PROTOBUF, NULL_IN_REQUIRED, OUT_OF_RANGE, WRONG_TYPE
from jobs.formats.protobuf.message_tree import Field, Message, Scalar
from jobs.generate.row_records import RowGenerator

_VARINT = 0
_WITH_LENGTH = 2
_FOUR_BYTES = 5


class ProtobufGenerator:
    """Makes messages, without what names their schema.

    Args:
        rows: Makes them of rows.
        tree: The message.
    """

    def __init__(self, rows: RowGenerator, tree: Message) -> None:
        self._rows: RowGenerator = rows
        self._fields: tuple[Field, ...] = tree.parts
        self._texts: tuple[Field, ...] = _scalars(tree, "string")
        self._whole: tuple[Field, ...] = _scalars(tree, "int32", "sint32", "uint32")
        kinds = {
            "truncated_protobuf": MALFORMED_PROTOBUF,
            "surplus_bytes": MALFORMED_PROTOBUF,
            "wrong_type": WRONG_TYPE,
        }
        kinds |= {"invalid_utf8": INVALID_UTF8} if self._texts else {}
        kinds |= {"out_of_range": OUT_OF_RANGE} if self._whole else {}
        self.bad_kinds: Mapping[str, str] = {**self._rows.bad_kinds, **kinds}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A message that lands."""
        return self._rows.good(rng, at)

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A message that becomes a dead letter of this kind.

        A field that comes twice counts with its last value, so what is wrong is put behind a good message.
        """
        if (kind == "out_of_range" and not self._whole) or kind == NULL_IN_REQUIRED:
            return self._rows.bad(kind, rng, at)
        made = self.good(rng, at)
        match kind:
            case "truncated_protobuf":
                # The last byte is always of a field that is then not whole.
                return made[:-1] if made else b"\x0a"
            case "surplus_bytes":
                return made + b"\xff"
            case "invalid_utf8":
                return made + _tag(rng.choice(self._texts).number, _WITH_LENGTH) + b"\x02\xffx"
            case "out_of_range":
                return made + _tag(rng.choice(self._whole).number, _VARINT) + _varint(2**40)
            case _:
                field = rng.choice(self._fields)
                if isinstance(field.type, Scalar) and field.type.kind in ("fixed32", "sfixed32", "float"):
                    return made + _tag(field.number, _VARINT) + b"\x01"
                return made + _tag(field.number, _FOUR_BYTES) + b"\0\0\0\0"


def _scalars(tree: Message, *kinds: str) -> tuple[Field, ...]:
    return tuple(
        each for each in tree.parts if each.shape == "one" and isinstance(each.type, Scalar) and each.type.kind in kinds
    )


def _varint(number: int) -> bytes:
    """A number as Protobuf writes it, seven bits in a byte."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)
