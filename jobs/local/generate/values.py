"""Generated values: good ones of a format and schema, and bad ones that have a name."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from pyiceberg import types as ice

from jobs.local.generate.json_encoding import JsonEncoder, json_text
from jobs.local.generate.record import FIRST_TIME, ValueGenerator
from jobs.local.generate.rows import (
    Row,
    Struct,
    drawn_row,
    filled,
    text_of,
)
from jobs.records.formats.interface.problems import (
    BAD_ENVELOPE,
    BAD_SCHEMA,
    EMPTY_VALUE,
    INVALID_UTF8,
    MALFORMED_JSON,
    MISSING_FIELD,
    NO_SCHEMA_ID,
    NOT_AN_OBJECT,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    UNKNOWN_SCHEMA,
    WRONG_LENGTH,
    WRONG_TYPE,
    ValueProblem,
)
from jobs.records.formats.interface.writer_schema import RegistrySchema, SchemaId
from jobs.records.formats.json.writer_decoder import JsonWriterTypes
from jobs.records.schema.declared import (
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)

NO_ID = 2**31 - 1
"""An id that no registry gives: the same in all records, as each one is asked for."""
_NO_MESSAGE = 9_999
_PACKED = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1}


class PrimitiveGenerator:
    """Makes values of a primitive format: text, bytes, or a number of fixed width, as Kafka's serializers write it.

    Args:
        kind: The format's name.
        column: The name of the one column.
    """

    def __init__(self, kind: str, column: str) -> None:
        self._kind: str = kind
        self._column: str = column
        kinds = {"string": {"invalid_utf8": INVALID_UTF8}, "bytes": {}}
        self.bad_kinds: Mapping[str, str] = kinds.get(kind, {"wrong_length": WRONG_LENGTH})

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands."""
        match self._kind:
            case "string":
                return text_of(self._column, rng).encode()
            case "bytes":
                return rng.randbytes(rng.randrange(1, 64))
            case "boolean":
                return bytes([rng.randrange(2)])
            case "float" | "double":
                return struct.pack(_PACKED[self._kind], rng.randrange(-4_000_000, 4_000_000) / 256)
            case _:
                return struct.pack(_PACKED[self._kind], rng.randrange(10_000))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """Bytes that are no UTF-8, or too few or too many of them."""
        if kind == "invalid_utf8":
            return b"\xff" + self.good(rng, at)
        value = self.good(rng, at)
        return rng.choice((value[:-1], value + b"\0"))


class JsonGenerator:
    """Generator of JSON with declared columns.

    Args:
        types: Types of the records.
        evolves: Whether the table evolves with its records, so that values of other types are not always refused.
        sends_null: Whether null is written.

    Raises:
        FrazilError: A column's encoding is not supported.
    """

    def __init__(
        self,
        types: JsonWriterTypes,
        *,
        evolves: bool = False,
        sends_null: bool = True,
    ) -> None:
        declared = types.declared
        self._single: bool = types.single
        self.encoder: JsonEncoder = JsonEncoder(types, sends_null=sends_null)
        named = {} if types.single or evolves else {each.name: each for each in declared.fields}
        self._required: tuple[str, ...] = tuple(name for name, each in named.items() if each.required)
        if types.defaults is not None:
            self._required = ()
        self._bounded: dict[str, int] = {name: most for name, each in named.items() if (most := _most(each))}
        # Nothing is of a wrong type where any value is taken.
        self._typed: dict[str, Field] = {
            name: each
            for name, each in named.items()
            if not (isinstance(each.type, Primitive) and each.type.name == "json")
        }
        kinds = {
            "truncated_json": (MALFORMED_JSON, True),
            "not_an_object": (NOT_AN_OBJECT, not types.single),
            "empty_value": (EMPTY_VALUE, True),
            "invalid_utf8": (INVALID_UTF8, True),
            "wrong_type": (WRONG_TYPE, self._typed),
            "missing_field": (MISSING_FIELD, self._required),
            "null_in_required": (NULL_IN_REQUIRED, self._required),
            "out_of_range": (OUT_OF_RANGE, self._bounded),
        }
        self.bad_kinds: Mapping[str, str] = {kind: found for kind, (found, possible) in kinds.items() if possible}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands; optional columns are now and then null or not there."""
        return self.encoder.encode(drawn_row(self.encoder.shape, rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter of this kind."""
        made = self.encoder.value(drawn_row(self.encoder.shape, rng, at))
        match kind:
            case "empty_value":
                return b""
            case "not_an_object":
                return rng.choice((b"[1,2]", b"null", b'"text"', b"17"))
            case "truncated_json":
                value = json_text(made)
                # Cut within the object, so that no prefix of it is JSON.
                return value[: rng.randrange(1, len(value))] if made and not self._single else b"{"
            case "invalid_utf8":
                return b'{"\xff":' + json_text(made) + b"}"
            case "wrong_type":
                field = rng.choice(tuple(self._typed.values()))
                made[field.name] = _of_another_type(field)
            case "missing_field":
                made.pop(rng.choice(self._required))
            case "null_in_required":
                made[rng.choice(self._required)] = None
            case _:
                name = rng.choice(tuple(self._bounded))
                made[name] = self._bounded[name] + 1
        return json_text(made)


def _most(field: Field) -> int | None:
    if not isinstance(field.type, Primitive) or field.type.encoding == "text":
        return None
    return _LARGEST.get(field.type.name)


def _of_another_type(field: Field) -> Any:
    match field.type:
        case Primitive() | StructType() | MapType(carried="object"):
            return [[]]
        case ListType() | MapType():
            return {"a": 1}


class ConnectGenerator:
    """Makes values of Connect's JSON: envelopes with their schema, or plain payloads where the stream's file has it.

    Args:
        payloads: Makes the payloads.
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


class RowEncoder(Protocol):
    """Writes rows of a writer schema."""

    @property
    def shape(self) -> Struct:
        """Shape of the rows."""
        ...

    def encode(self, row: Row) -> bytes:
        """The bytes of a row, without what names the schema."""
        ...


class BinaryGenerator:
    """Generator of Avro or Protobuf records, without the id of their schema.

    Args:
        encoder: Encoder for the writer schema.
        columns: Columns that take the records.
        kind: `avro` or `protobuf`.
        malformed: Error class of bytes that are no whole record.
        empty_is_bad: Whether an empty value is bad.
    """

    def __init__(
        self,
        encoder: RowEncoder,
        columns: Iterable[ice.NestedField],
        kind: str,
        malformed: str,
        *,
        empty_is_bad: bool,
    ) -> None:
        self._encoder: RowEncoder = encoder
        self._shape: Struct = filled(encoder.shape, columns)
        kinds = {"surplus_bytes": malformed}
        kinds |= {"empty_value": EMPTY_VALUE} if empty_is_bad else {}
        # A record that is always of one byte, such as a boolean, cannot be cut.
        if any(len(self.good(random.Random(number), FIRST_TIME)) > 1 for number in range(8)):
            kinds[f"truncated_{kind}"] = malformed
        self.bad_kinds: Mapping[str, str] = kinds

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A record that lands."""
        return self._encoder.encode(drawn_row(self._shape, rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A record that becomes a dead letter of this kind."""
        if kind == "empty_value":
            return b""
        whole = self.good(rng, at)
        if kind == "surplus_bytes":
            return whole + b"\xff"
        # The last byte is always needed. A shorter record begins with a number here that does not end.
        return whole[:-1] if len(whole) > 1 else b"\x80"


def schema_prefix(number: int, message: tuple[int, ...] | None = None) -> bytes:
    """Prefix of a record: the id of its schema and, for Protobuf, the indexes of the message.

    Args:
        number: Id of the schema.
        message: Indexes of the message, outermost first; None for other formats.
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
    """Source of a single schema, for which records are generated.

    Args:
        number: Id of the schema.
        schema: The schema.

    Attributes:
        number: Id of the schema.
        schema: The schema.
    """

    def __init__(self, number: int, schema: RegistrySchema) -> None:
        self.number: int = number
        self.schema: RegistrySchema = schema

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema, by its id.

        Raises:
            ValueProblem: The id is another one.
        """
        if schema_id.number != self.number:
            raise ValueProblem(UNKNOWN_SCHEMA, f"the registry does not know {schema_id}")
        return self.schema

    @property
    def unmet(self) -> frozenset[SchemaId]:
        """Empty set: every requested id is known here, or made up."""
        return frozenset()

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        """Empty mapping: no registry is asked."""
        return {}


class RegistryGenerator:
    """Generator of records with the id of their schema in front, in the format of Confluent's serializers.

    Args:
        bodies: Generator of the bytes after the prefix.
        number: Id of the schema.
        message: Indexes of the message for Protobuf; None for other formats.
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
