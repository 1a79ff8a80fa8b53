"""Writer schemas: the schema with which a record was written, and what decodes records of one of them.

A registry, or the record itself, says which schema it was written with. A decoder of one writer schema gives rows with
that schema's own fields and types; `jobs.records.formats.conform` brings them to the columns of the stream.
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
    """A schema as its registry has it; immutable, so it is a key of caches.

    Attributes:
        text: Avro's JSON, a .proto file, a JSON Schema, or the schema of Connect's JSON envelope.
        references: What it refers to, with all that those refer to, each before whoever needs it: the name by which it
            is referred to (of Protobuf the path of an import), and its text.
        message: Of Protobuf, the indexes of the message in the file, outermost first.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: tuple[int, ...] = ()


class SchemaId(NamedTuple):
    """How a record names its writer schema: by the number that the registry gave it, or by its GUID.

    Attributes:
        number: Unsigned, 32 bits; None where the GUID is given.
        guid: 32 hexadecimal digits, small.
    """

    number: int | None = None
    guid: str | None = None

    def __str__(self) -> str:
        return f"id {self.number}" if self.guid is None else f"GUID {self.guid}"


class RegistrySchema(NamedTuple):
    """A writer schema with what its registry calls it.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`, as registries say it.
        schema: The schema; of Protobuf without a message.
    """

    kind: str
    schema: WriterSchema


class SchemaLookup(Protocol):
    """Finds writer schemas by id; travels to the tasks pickled. A registry is asked once for an id."""

    def find(self, schema_id: SchemaId) -> RegistrySchema:
        """The schema of an id.

        Raises:
            ValueProblem: The registry does not know the id, though it was asked for a time (registries lag).
            OSError: The registry cannot be asked: no record's fault.
        """
        ...

    @property
    def unmet(self) -> Collection[SchemaId]:
        """The ids that were looked for here, and that the registry did not know."""
        ...

    def learned(self) -> Mapping[SchemaId, RegistrySchema]:
        """What this process had to ask the registry for since it was asked for it last."""
        ...


class WriterDecoder(Protocol):
    """Decodes records of one writer schema.

    Its decoders, the reference and that for blocks, give the same rows and the same failures.
    """

    @property
    def schema(self) -> Schema:
        """The fields of the records, with the names, types and nullability that the writer schema gives them."""
        ...

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: What follows the schema's id in each record; never null.

        Returns:
            Rows in the Arrow types of `schema` (`jobs.records.schema.arrow_schema.rows_arrow_schema`), without
            tombstones.
        """
        ...


MakeWriterDecoder: TypeAlias = Callable[[WriterSchema, Mapping[str, Any]], WriterDecoder]
"""Makes a decoder of a writer schema and of the format's options; raises `BadWriterSchema` for one that is none."""


class BadWriterSchema(Exception):
    """A writer schema that is none of its format, or one whose records have no columns.

    Args:
        message: What is wrong, without the schema's text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message: str = message


class NoSchema(BadWriterSchema):
    """A text that is no schema of its format, whatever records it was meant for."""
