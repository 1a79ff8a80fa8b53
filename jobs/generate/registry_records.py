"""Records that name their writer schema by the id that a registry gave it, as Confluent's serializers write them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from jobs.formats.problems import BAD_SCHEMA, NO_SCHEMA_ID, UNKNOWN_SCHEMA, ValueProblem
from jobs.formats.writer_schema import RegistrySchema, SchemaId
from jobs.generate.record import ValueGenerator

NO_ID = 2**31 - 1
"""An id that no registry gives: the same in all records, as each one is asked for."""
_NO_MESSAGE = 9_999


def schema_prefix(number: int, message: tuple[int, ...] | None = None) -> bytes:
    """What stands before a record: the id of its schema, and of Protobuf the indexes of the message.

    Args:
        number: The id.
        message: The indexes, outermost first; None of another format.
    """
    prefix = b"\0" + number.to_bytes(4, "big")
    if message is None:
        return prefix
    if message == (0,):
        return prefix + b"\0"
    return prefix + b"".join(map(_zigzag, (len(message), *message)))


def _zigzag(number: int) -> bytes:
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


class OneSchema:
    """Finds one schema, the one that records are generated of.

    Args:
        number: Its id.
        schema: The schema.

    Attributes:
        number: Its id.
        schema: The schema.
    """

    def __init__(self, number: int, schema: RegistrySchema) -> None:
        self.number: int = number
        self.schema: RegistrySchema = schema

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema, by its id.

        Raises:
            ValueProblem: Another one is asked for.
        """
        if schema_id.number != self.number:
            raise ValueProblem(UNKNOWN_SCHEMA, f"the registry does not know {schema_id}")
        return self.schema

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """None: every id that is looked for is known here, or made up."""
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        """Nothing: no registry is asked."""
        return {}


class RegistryGenerator:
    """Makes records of a writer schema, with its id in front.

    Args:
        bodies: Makes what follows the id.
        number: The id.
        message: Of Protobuf, the indexes of the message.
    """

    def __init__(self, bodies: ValueGenerator, number: int, message: tuple[int, ...] | None = None) -> None:
        self._bodies: ValueGenerator = bodies
        self._message: tuple[int, ...] | None = message
        self._number: int = number
        self._prefix: bytes = schema_prefix(number, message)
        own = {"no_magic_byte": NO_SCHEMA_ID, "wrong_id": UNKNOWN_SCHEMA}
        own |= {} if message is None else {"wrong_message": BAD_SCHEMA}
        self.bad_kinds: Mapping[str, str] = {**own, **bodies.bad_kinds}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands."""
        return self._prefix + self._bodies.good(rng, at)

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter of this kind."""
        if kind in self._bodies.bad_kinds:
            return self._prefix + self._bodies.bad(kind, rng, at)
        body = self._bodies.good(rng, at)
        match kind:
            case "wrong_id":
                return schema_prefix(NO_ID, self._message) + body
            case "wrong_message":
                return schema_prefix(self._number, (_NO_MESSAGE,)) + body
            case _:
                # As a producer writes that does not know of the registry.
                return bytes([rng.randrange(2, 256)]) + body.ljust(4, b" ")
