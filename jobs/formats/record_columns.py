"""Record columns: columns of rows that are not from the value, but from the key, the headers and what Kafka knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from jobs.formats.decoder_spec import DecoderSpec, rows_of
from jobs.formats.writer_schema import SchemaLookup
from jobs.schema.declared import Field, StructType
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.kafka_columns import KAFKA_COLUMNS, KafkaColumns

SchemaIdPlace: TypeAlias = Literal["both", "prefix", "header"]
"""Where a record names its writer schema: in a header, or else before its value; before its value only; or in a header
only."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """What rows have of a record's key.

    Attributes:
        decoder: Of the keys.
        into: The column of structs that holds a key's columns; None where they are columns of the table.
        required: Whether a record without a key is refused.
    """

    decoder: DecoderSpec
    into: str | None = None
    required: bool = False

    @property
    def fields(self) -> tuple[ice.NestedField, ...]:
        """The columns, with ids that mean nothing."""
        fields = rows_of(self.decoder).fields
        if self.into is None:
            return fields
        return (ice.NestedField(1, self.into, ice.StructType(*fields), required=self.required),)


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """What rows have of a header.

    Attributes:
        column: Its name and type; required where a record without the header is refused.
        header: The header's name.
        as_bytes: Whether numbers are big-endian bytes, and not text.
    """

    column: Field
    header: str
    as_bytes: bool = False

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Columns of rows that are not from the value.

    Attributes:
        kafka: Those of Kafka's own, the last of a table.
        key: Those from the key.
        headers: Those from headers.
        schema_id: Where records name the writer schemas of their values and keys.
    """

    kafka: KafkaColumns = KAFKA_COLUMNS
    key: KeyColumns | None = None
    headers: tuple[HeaderColumn, ...] = ()
    schema_id: SchemaIdPlace = "both"

    @property
    def key_names(self) -> frozenset[str]:
        """The columns that a record's key can be read from."""
        names = {field.name for field in self.key.fields} if self.key else set()
        return frozenset(names | ({self.kafka.key} if self.kafka.key else set()))

    @property
    def decoded(self) -> tuple[ice.NestedField, ...]:
        """The columns from key and headers, in their order, with ids that mean nothing."""
        headers = iceberg_schema(StructType(tuple(each.column for each in self.headers))).fields
        return (*(self.key.fields if self.key else ()), *headers)

    @property
    def fetched(self) -> frozenset[str]:
        """What has to be fetched of a record for them, beyond what every record is fetched with."""
        asked = {"key"} if self.key else set[str]()
        return self.kafka.fetched | asked | ({"headers"} if self.headers else set())

    def with_schemas(self, schemas: SchemaLookup | None) -> RecordColumns:
        """The same with what finds the writer schemas of keys by their ids."""
        if self.key is None:
            return self
        return replace(self, key=replace(self.key, decoder=replace(self.key.decoder, schemas=schemas)))

    def beside(self, rows: Schema) -> Schema:
        """The columns of rows with those from key and headers behind them, with fresh field ids."""
        if not self.decoded:
            return rows
        return assign_fresh_schema_ids(Schema(*_numbered((*rows.fields, *self.decoded))))

    def left_of(self, table: Schema) -> Schema:
        """The columns of a table that are the value's; field ids stay."""
        own = {field.name for field in self.decoded} | self.kafka.names
        return Schema(*(field for field in table.fields if field.name not in own))


NO_RECORD_COLUMNS = RecordColumns(KafkaColumns(None, None, None, None))


def _numbered(fields: tuple[ice.NestedField, ...]) -> Iterator[ice.NestedField]:
    """The fields under other ids, which have to differ until a catalog numbers them."""
    ids = iter(range(1, 1_000_000))
    for field in fields:
        kind = _renumbered(field.field_type, ids)
        yield ice.NestedField(next(ids), field.name, kind, required=field.required, doc=field.doc)


def _renumbered(kind: ice.IcebergType, ids: Iterator[int]) -> ice.IcebergType:
    match kind:
        case ice.StructType():
            return ice.StructType(
                *(
                    ice.NestedField(next(ids), each.name, _renumbered(each.field_type, ids), each.required, each.doc)
                    for each in kind.fields
                )
            )
        case ice.ListType():
            element = _renumbered(kind.element_type, ids)
            return ice.ListType(next(ids), element, element_required=kind.element_required)
        case ice.MapType():
            key, value = _renumbered(kind.key_type, ids), _renumbered(kind.value_type, ids)
            return ice.MapType(next(ids), key, next(ids), value, value_required=kind.value_required)
        case _:
            return kind
