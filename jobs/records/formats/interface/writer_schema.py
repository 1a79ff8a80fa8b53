"""Writer schemas: the schemas that records were written with, and their decoders.

A registry, or the record itself, gives the schema that a record was written with. A decoder of one writer schema gives
rows with that schema's own fields and types; `jobs.records.formats.conform` converts them to the stream's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder import Decoded


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema as its registry has it; immutable, so that it can be a key of caches.

    Attributes:
        text: Avro's JSON, a .proto file, a JSON Schema, or the schema of Connect's JSON envelope.
        references: The schemas that it refers to, directly or indirectly, each before those that need it: the name of
            the reference (in Protobuf the path of an import), and the text.
        message: In Protobuf, the indexes of the message in the file, outermost first.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: tuple[int, ...] = ()


class SchemaId(NamedTuple):
    """The id by which a record names its writer schema: the registry's number, or the GUID.

    Attributes:
        number: Unsigned, 32 bits; None if the GUID is given.
        guid: 32 lower-case hexadecimal digits.
    """

    number: int | None = None
    guid: str | None = None

    def __str__(self) -> str:
        return f"id {self.number}" if self.guid is None else f"GUID {self.guid}"


class RegistrySchema(NamedTuple):
    """A writer schema with the registry's name for its kind.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`, as registries write it.
        schema: The schema; in Protobuf without a message.
    """

    kind: str
    schema: WriterSchema


class SchemaLookup(Protocol):
    """Finds writer schemas by id; pickled for the tasks. A registry is asked once for an id."""

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """Return the schema of an id.

        Raises:
            ValueProblem: The registry does not know the id, even after repeated requests (registries lag).
            OSError: The registry cannot be asked: the fault of no record.
        """
        ...

    @property
    def unmet(self) -> Collection[SchemaId]:
        """Return the ids that were looked up here, and that the registry did not know."""
        ...

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        """Return the schemas that this process has looked up and the driver does not know."""
        ...


class WriterDecoder(Protocol):
    """Decodes records of one writer schema.

    The reference decoder and the block decoder of a schema give the same rows and the same failures.
    """

    @property
    def schema(self) -> Schema:
        """Return the fields of the records, with the names, types and nullability of the writer schema."""
        ...

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: The bytes behind the schema's id in each record; never null.

        Returns:
            Rows in the Arrow types of `schema` (`jobs.records.schema.arrow_schema.rows_arrow_schema`), without
            tombstones.
        """
        ...


MakeWriterDecoder: TypeAlias = Callable[[WriterSchema, Mapping[str, Any]], WriterDecoder]
"""Makes a decoder of a writer schema and of the format's options; raises `BadWriterSchema` for an invalid schema."""


class BadWriterSchema(Exception):
    """A writer schema is invalid for its format, or its records have no columns.

    Args:
        message: What is wrong, without the schema's text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: str = message


class NoSchema(BadWriterSchema):
    """A text is no schema of its format."""
