"""Decoder of records whose writer schemas are in a registry: it decodes each schema's records together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.conform import (
    Options,
    Writer,
    by_rows,
    merged,
    writer_of,
)
from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    Decoded,
    Failure,
    Format,
    UnknownField,
)
from jobs.records.formats.interface.decoder_spec import SURVEY, DecoderSpec, RowsSchema
from jobs.records.formats.interface.problems import BAD_SCHEMA, ValueProblem
from jobs.records.formats.interface.writer_schema import MakeWriterDecoder, SchemaLookup, WriterSchema
from jobs.records.formats.registry_wire import (
    USE_SCHEMA_ID,
    Group,
    Grouped,
    WrittenAs,
    group_by_schema,
)
from jobs.records.formats.rescued_fields import conformed_rows
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.name_matching import NAME_RULE

_OWN_OPTIONS = frozenset({"unknown_fields", "evolve", "refused", "extra_column", NAME_RULE, SURVEY, USE_SCHEMA_ID})


@dataclass(frozen=True, slots=True)
class RegistryKind:
    """Properties of one format in registries and records.

    Attributes:
        name: Registries' name for its schemas: `AVRO`, `PROTOBUF` or `JSON`.
        messages: Whether the indexes of a message follow a schema's id.
        more_fields: Whether a record may have fields that its own schema does not name. The decoder of a writer schema
            then counts or refuses them, and has the option `unknown_fields`.
    """

    name: str
    messages: bool = False
    more_fields: bool = False


def registry_format(
    name: str, kind: RegistryKind, reference: MakeWriterDecoder, block: MakeWriterDecoder, *, json_fields: bool = False
) -> Format:
    """Return a format whose records name their writer schema.

    Args:
        name: The value of `decode.value`.
        kind: The kind of its schemas.
        reference: Makes the reference decoder of one writer schema, which defines what a record means.
        block: Makes the decoder for blocks, which gives the same.
        json_fields: Whether a record, as it stands in the topic, is JSON.
    """

    def unknown_fields(
        spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
    ) -> dict[str, UnknownField]:
        return RegistryDecoder(spec, kind, block).unknown_fields(values, rows, paths)

    def writer_rows(schema: WriterSchema, options: Mapping[str, Any]) -> Schema:
        message = schema.message or ((0,) if kind.messages else ())
        rows = block(WriterSchema(schema.text, schema.references, message), _of_format(kind, options)).schema
        # Tables have no type for JSON texts and for messages without fields.
        return Schema.model_validate_json(rows.model_dump_json())

    return Format(
        name,
        reference=lambda spec: RegistryDecoder(spec, kind, reference),
        block=lambda spec: RegistryDecoder(spec, kind, block),
        probe=b"",
        unknown_fields=unknown_fields,
        json_fields=json_fields,
        registry_kind=kind.name,
        writer_rows=writer_rows,
    )


class RegistryDecoder:
    """Decode records that name their writer schema by an id.

    Args:
        spec: Spec with the stream's columns, the format's options, and the lookup of schemas.
        kind: The kind of the schemas.
        make: Makes the decoder of one writer schema.

    Attributes:
        groups: Number of writer schemas of the last block's records.
    """

    def __init__(self, spec: DecoderSpec, kind: RegistryKind, make: MakeWriterDecoder) -> None:
        self._kind: RegistryKind = kind
        self._make: MakeWriterDecoder = make
        self.groups: int = 1
        if spec.schemas is None:
            raise ValueError(f"a decoder of the format {spec.kind} needs a lookup of schemas")
        self._lookup: SchemaLookup = spec.schemas
        self._rows: RowsSchema = spec.schema
        self._schema: pa.Schema = rows_arrow_schema(conformed_rows(spec))
        self._use_schema_id: int | None = spec.options.get(USE_SCHEMA_ID)
        self._survey: bool = bool(spec.options.get(SURVEY))
        self._options: Options = tuple(sorted((name, of) for name, of in spec.options.items() if name != SURVEY))
        self._given: Options = tuple(sorted(_of_format(kind, spec.options).items()))

    def decode(self, values: pa.BinaryArray, schema_ids: pa.BinaryArray | None = None) -> Decoded:
        """Decodes a block; a bad record becomes a failure.

        Args:
            values: One value per record; null is a tombstone.
            schema_ids: The header of each record that names its writer schema; null for a record without one.

        Raises:
            OSError: The registry cannot be asked.
        """
        grouped = self._grouped(values, schema_ids)
        self.groups = len(grouped.groups)
        tombstones = np.flatnonzero(np.asarray(values.is_null())).astype(np.int64)
        parts = [self._decoded(group) for group in grouped.groups]
        return merged(parts, grouped.failures, tombstones, self._schema)

    def unknown_fields(
        self, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
    ) -> dict[str, UnknownField]:
        """Return the fields that no column takes, in these records, by their paths."""
        wanted, found = set(paths), {}
        chosen = np.fromiter(rows, np.int64)
        if not len(chosen):
            return {}
        for group in self._grouped(values.take(pa.array(chosen))).groups:
            try:
                writer = self._writer(group.written)
            except ValueProblem:
                continue
            for path, field in writer.unknown_fields(group.values, wanted):
                if path in wanted and path not in found:
                    found[path] = field._replace(row=int(chosen[group.rows[field.row]]))
        return found

    def _grouped(self, values: pa.BinaryArray, schema_ids: pa.BinaryArray | None = None) -> Grouped:
        messages, use_schema_id = self._kind.messages, self._use_schema_id
        return group_by_schema(values, schema_ids, messages=messages, use_schema_id=use_schema_id)

    def _decoded(self, group: Group) -> Decoded:
        """Return the records of one writer schema, by their rows in the block."""
        try:
            writer = self._writer(group.written)
        except ValueProblem as problem:
            failures = [
                Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field)
                for row in group.rows.tolist()
            ]
            return Decoded(
                pa.RecordBatch.from_pylist([], schema=self._schema),
                np.zeros(0, np.int64),
                failures,
                np.zeros(0, np.int64),
                {},
            )
        return by_rows(writer.decode(group.values, survey=self._survey), group.rows)

    def _writer(self, written: WrittenAs) -> Writer:
        """Return the decoder of records of a writer schema.

        Raises:
            ValueProblem: The schema does not exist, or is of another format.
            OSError: The registry cannot be asked.
        """
        found = self._lookup.find(written.schema)
        if found.kind != self._kind.name:
            message = f"needs a schema of the type {self._kind.name}, found {written.schema}, which is {found.kind}"
            raise ValueProblem(BAD_SCHEMA, message)
        schema = WriterSchema(found.schema.text, found.schema.references, written.message)
        writer = writer_of(self._make, schema, self._given, self._options, self._rows)
        if isinstance(writer, str):
            raise ValueProblem(BAD_SCHEMA, f"needs a schema that can be read, found {written.schema}: {writer}")
        return writer


def _of_format(kind: RegistryKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a decoder of one writer schema takes."""
    own = _OWN_OPTIONS - {"unknown_fields"} if kind.more_fields else _OWN_OPTIONS
    given = {name: value for name, value in options.items() if name not in own}
    # Fields that the writer schema does not name have no type, and are counted.
    return given | ({"unknown_fields": "ignore"} if given.get("unknown_fields") == "keep" else {})
