"""Record columns: columns of rows that come not from the value, but from the key, the headers and Kafka's metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.columns.text_columns import Leaf
from jobs.records.formats.interface.decoder_spec import (
    DecoderSpec,
    TableSchema,
    UnresolvedSchema,
    rows_of,
    undeclared_column,
)
from jobs.records.formats.interface.problems import (
    OUT_OF_RANGE,
    WRONG_TYPE,
    BadValue,
    ValueProblem,
    shown,
)
from jobs.records.formats.interface.writer_schema import SchemaLookup
from jobs.records.formats.primitive.block import READERS
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Field, Primitive, StructType
from jobs.records.schema.iceberg_schema import fresh_schema, iceberg_schema, schema_text
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, KafkaColumns
from jobs.records.schema.name_matching import NAME_RULE, Aliases, NameRule

SchemaIdPlace: TypeAlias = Literal["both", "prefix", "header"]
"""Where a record names its writer schema: in a header or else before its value, only before its value, or only in a
header.
"""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Columns of rows from a record's key.

    Attributes:
        decoder: Decoder of the keys.
        into: The struct column that holds a key's columns; None if they are columns of the table. Columns that only the
            table defines are always in one.
        required: Whether a record without a key is refused.
    """

    decoder: DecoderSpec
    into: str | None = None
    required: bool = False

    @property
    def is_resolved(self) -> bool:
        """Return whether the types of the columns are known; otherwise only their names are."""
        return not isinstance(self.decoder.schema, UnresolvedSchema)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, which are always known."""
        return (self.into,) if self.into is not None else tuple(each.name for each in self.fields)

    def problem_with(self, table: Schema) -> str | None:
        """Return why a table does not define a key's columns; None if it does, or need not."""
        if self.is_resolved or self.into is None:
            return None
        column = next((each for each in table.fields if each.name == self.into), None)
        if column is None:
            return f"the table has no column {self.into}, whose fields would be those of a key"
        if not isinstance(column.field_type, ice.StructType):
            return f"column {self.into} is {schema_text(column.field_type)}, no struct whose fields would be a key's"
        if not column.field_type.fields:
            return f"column {self.into} is a struct without fields"
        if self.decoder.kind == "json" and (other := undeclared_column(Schema(*column.field_type.fields))):
            return f"column {self.into} has a field that JSON does not fill: {other}"
        return None

    def resolved_for(self, table: Schema, aliases: Aliases = ()) -> KeyColumns:
        """Return the same with the types that a table has, unless a file declares them.

        Args:
            table: The table's schema, for which `problem_with` is None.
            aliases: Aliases of the table's columns.
        """
        if self.is_resolved or self.into is None:
            return self
        column = next(each for each in table.fields if each.name == self.into)
        found = self.made_of(column.field_type.fields if isinstance(column.field_type, ice.StructType) else ())
        within = tuple((path[1:], names) for path, names in aliases if path[0] == self.into and path[1:])
        options = {**self.decoder.options, **({NAME_RULE: NameRule(within)} if within else {})}
        return replace(
            found, decoder=replace(found.decoder, options=options), required=self.required or column.required
        )

    def made_of(self, fields: Iterable[ice.NestedField]) -> KeyColumns:
        """Return the same with these columns in the struct column, of which only the name was known."""
        return replace(self, decoder=replace(self.decoder, schema=TableSchema(Schema(*fields).model_dump_json())))

    @property
    def rows(self) -> Schema:
        """Return the columns of a key, or the fields of its struct.

        Raises:
            ValueError: Only the table defines them, and it was not looked at.
        """
        return rows_of(self.decoder)

    @property
    def fields(self) -> tuple[ice.NestedField, ...]:
        """Return the columns, with arbitrary ids.

        Raises:
            ValueError: Only the table defines them, and it was not looked at.
        """
        fields = self.rows.fields
        if self.into is None:
            return fields
        return (ice.NestedField(1, self.into, ice.StructType(*fields), required=self.required),)


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """A column of rows from a header.

    Attributes:
        column: Its name and type; required if a record without the header is refused.
        header: The header's name.
        as_bytes: Whether numbers are big-endian bytes instead of text.
    """

    column: Field
    header: str
    as_bytes: bool = False

    @property
    def name(self) -> str:
        """Return the column's name."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Columns of rows that do not come from the value.

    Attributes:
        kafka: Columns of Kafka's metadata, the last of a table.
        key: Columns from the key.
        headers: Columns from headers.
        schema_id: Where records name the writer schemas of their values and keys.
    """

    kafka: KafkaColumns = KAFKA_COLUMNS
    key: KeyColumns | None = None
    headers: tuple[HeaderColumn, ...] = ()
    schema_id: SchemaIdPlace = "both"

    @property
    def key_names(self) -> frozenset[str]:
        """Return the columns that a record's key can be read from."""
        names = set(self.key.names) if self.key else set[str]()
        return frozenset(names | ({self.kafka.key} if self.kafka.key else set()))

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all columns, which are known even where their types are not."""
        of_key = self.key.names if self.key else ()
        return self.kafka.names | {*of_key, *(each.name for each in self.headers)}

    @property
    def decoded(self) -> tuple[ice.NestedField, ...]:
        """Return the columns from key and headers, in their order, with arbitrary ids.

        Raises:
            ValueError: Only the table defines those of the key, and it was not looked at.
        """
        headers = iceberg_schema(StructType(tuple(each.column for each in self.headers))).fields
        return (*(self.key.fields if self.key else ()), *headers)

    @property
    def fetched(self) -> frozenset[str]:
        """Return the parts of a record that these columns need, beyond those that are always fetched."""
        asked = {"key"} if self.key else set[str]()
        return self.kafka.fetched | asked | ({"headers"} if self.headers else set())

    def with_schemas(self, schemas: SchemaLookup | None) -> RecordColumns:
        """Return the same with a lookup of the keys' writer schemas by their ids."""
        if self.key is None:
            return self
        return replace(self, key=replace(self.key, decoder=replace(self.key.decoder, schemas=schemas)))

    def resolved_for(self, table: Schema, aliases: Aliases = ()) -> RecordColumns:
        """Return the same with the key's columns as a table has them, unless a file declares them."""
        return self if self.key is None else replace(self, key=self.key.resolved_for(table, aliases))

    def with_key_of(self, fields: Iterable[ice.NestedField] | None) -> RecordColumns:
        """Return the same with these columns of the key (None: no change); without any an unresolved key is dropped."""
        if self.key is None or fields is None:
            return self
        if made := tuple(fields):
            return replace(self, key=self.key.made_of(made))
        return self if self.key.is_resolved else replace(self, key=None)

    def beside(self, rows: Schema) -> Schema:
        """Return the columns of rows with those from key and headers behind them, with fresh field ids."""
        if not self.decoded:
            return rows
        return fresh_schema((*rows.fields, *self.decoded))

    def left_of(self, table: Schema) -> Schema:
        """Return the columns of a table that come from the value; field ids stay."""
        return Schema(*(field for field in table.fields if field.name not in self.names))


NO_RECORD_COLUMNS = RecordColumns(KafkaColumns(None, None, None, None))


TEXT_TYPES = (
    *("string", "binary", "boolean", "int", "long", "float", "double", "decimal"),
    *("date", "time", "timestamp", "timestamptz", "uuid"),
)
BYTES_TYPES = ("string", "binary", "boolean", "int", "long", "float", "double")
"""Types of headers whose bytes are as Kafka's serializers write them."""

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BITS = {"int": 32}
_LONGEST = 400


def header_values(declared: Primitive, values: Sequence[bytes | None], *, as_bytes: bool) -> Leaf:
    """Return the column of the values of a header.

    Args:
        declared: The column's type.
        values: One value per record; null if the record has none, or a null.
        as_bytes: Whether they are as Kafka's serializers write them instead of text.

    Returns:
        The array, null where a value was refused, and the refused values in ascending order.
    """
    read = _reader(declared, as_bytes=as_bytes)
    found: list[Any] = []
    bad: list[BadValue] = []
    for index, value in enumerate(values):
        try:
            found.append(None if value is None else read(value))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    if as_bytes or declared.name == "binary":
        return pa.array(found, arrow_type(declared)), bad
    if declared.name in ("float", "double"):
        found = [b"null" if each is None else each for each in found]
    array, refused = convert_leaf(_as_text(declared), found, required=False)
    return array, sorted([*bad, *refused], key=lambda each: each.index)


def _as_text(declared: Primitive) -> Primitive:
    return replace(declared, encoding="text") if declared.name == "decimal" else declared


def _reader(declared: Primitive, *, as_bytes: bool) -> Callable[[bytes], Any]:
    if declared.name == "binary":
        return bytes
    if as_bytes or declared.name == "string":
        return READERS[declared.name]
    text = READERS["string"]
    match declared.name:
        case "boolean":
            return lambda value: _boolean(text(value))
        case "float" | "double":
            return lambda value: _number(declared, text(value)).encode()
        case "int" | "long":
            return lambda value: _whole(declared, text(value), _BITS.get(declared.name, 64))
        case _ if declared.encoding is not None and ("epoch" in declared.encoding or "_of_day" in declared.encoding):
            return lambda value: _whole(declared, text(value), 64)
        case _:
            return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueProblem(WRONG_TYPE, f"needs boolean, found {shown(text)}")
    return text == "true"


def _whole(declared: Primitive, text: str, bits: int) -> int:
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found {shown(text)}")
    number = int(text)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueProblem(OUT_OF_RANGE, f"needs {declared}, found a number beyond its range")
    return number


def _number(declared: Primitive, text: str) -> str:
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found {shown(text)}")
    return text
