"""Decoder of records whose writer schemas a registry keeps: each schema's records together, in the stream's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.formats.conform import Conform, Extra
from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure, Format, UnknownField
from jobs.formats.decoder_spec import DecoderSpec, rows_of
from jobs.formats.problems import BAD_SCHEMA, ValueProblem
from jobs.formats.registry_wire import Group, WrittenAs, group_by_schema
from jobs.formats.writer_schema import BadWriterSchema, MakeWriterDecoder, SchemaLookup, WriterDecoder, WriterSchema
from jobs.schema.arrow_schema import rows_arrow_schema
from jobs.schema.evolution_policy import NO_EVOLUTION, EvolutionPolicy

MOST_WRITERS = 500
"""Writer schemas whose decoders a process keeps."""

_OWN_OPTIONS = frozenset({"unknown_fields", "evolve", "refused"})


@dataclass(frozen=True, slots=True)
class RegistryKind:
    """What registries and records have of their own for one format.

    Attributes:
        name: What registries call its schemas: `AVRO`, `PROTOBUF` or `JSON`.
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
    """A format whose records name their writer schema.

    Args:
        name: What `decode.value` says.
        kind: Of its schemas.
        reference: Makes the decoder that says what a record of one writer schema means.
        block: Makes the one for blocks, which gives the same.
        json_fields: Whether a record, as it stands in the topic, is JSON.
    """

    def unknown_fields(
        spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
    ) -> dict[str, UnknownField]:
        return RegistryDecoder(spec, kind, block).unknown_fields(values, rows, paths)

    def writer_rows(schema: WriterSchema, options: Mapping[str, Any]) -> Schema:
        message = schema.message or ((0,) if kind.messages else ())
        return block(WriterSchema(schema.text, schema.references, message), _of_format(kind, options)).schema

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
    """Decodes records that name their writer schema by an id.

    Args:
        spec: With the stream's columns, the format's options, and the lookup of schemas.
        kind: Of the schemas.
        make: Makes the decoder of one writer schema.
    """

    def __init__(self, spec: DecoderSpec, kind: RegistryKind, make: MakeWriterDecoder) -> None:
        self._kind: RegistryKind = kind
        self._make: MakeWriterDecoder = make
        if spec.schemas is None:
            raise ValueError(f"a decoder of the format {spec.kind} needs a lookup of schemas")
        self._lookup: SchemaLookup = spec.schemas
        self._rows: str = rows_of(spec).model_dump_json()
        self._schema: pa.Schema = rows_arrow_schema(rows_of(spec))
        self._options: tuple[tuple[str, Any], ...] = tuple(sorted(spec.options.items()))

    def decode(self, values: pa.BinaryArray, schema_ids: pa.BinaryArray | None = None) -> Decoded:
        """Decodes a block; a bad record becomes a failure.

        Args:
            values: One value per record; null is a tombstone.
            schema_ids: What the header for it says of each record's writer schema; null of a record without one.

        Raises:
            OSError: The registry cannot be asked.
        """
        grouped = group_by_schema(values, schema_ids, messages=self._kind.messages)
        tombstones = np.flatnonzero(np.asarray(values.is_null())).astype(np.int64)
        parts = [self._decoded(group) for group in grouped.groups]
        if len(parts) == 1 and not grouped.failures and not len(tombstones):
            return parts[0]
        return self._merged(parts, grouped.failures, tombstones)

    def unknown_fields(
        self, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
    ) -> dict[str, UnknownField]:
        """Fields that no column takes, in these records, by their paths."""
        wanted, found = set(paths), {}
        chosen = np.fromiter(rows, np.int64)
        if not len(chosen):
            return {}
        for group in group_by_schema(values.take(pa.array(chosen)), messages=self._kind.messages).groups:
            try:
                writer = self._writer(group.written)
            except ValueProblem:
                continue
            decoded = writer.decoder.decode(group.values)
            for path, field in writer.conform.unknown_fields(decoded):
                if path in wanted and path not in found:
                    found[path] = field._replace(row=int(chosen[group.rows[field.row]]))
        return found

    def _decoded(self, group: Group) -> Decoded:
        """The records of one writer schema, by their rows in the block."""
        try:
            writer = self._writer(group.written)
        except ValueProblem as problem:
            failures = [
                Failure(row, DECODE_VALUE, problem.error_class, problem.message, problem.field)
                for row in group.rows.tolist()
            ]
            return Decoded(self._no_rows(), np.zeros(0, np.int64), failures, np.zeros(0, np.int64), {})
        made = writer.conform.apply(writer.decoder.decode(group.values))
        at = group.rows
        return Decoded(
            made.rows,
            at[made.positions],
            [failure.at(int(at[failure.row])) for failure in made.failures],
            made.tombstones,
            made.unknown_fields,
            tuple(need.at(int(at[need.row])) for need in made.needs),
        )

    def _writer(self, written: WrittenAs) -> _Writer:
        """What decodes records of a writer schema.

        Raises:
            ValueProblem: There is no such schema, or it is none of this format.
            OSError: The registry cannot be asked.
        """
        found = self._lookup.find(written.schema)
        if found.kind != self._kind.name:
            message = f"needs a schema of the kind {self._kind.name}, found {written.schema}, which is {found.kind}"
            raise ValueProblem(BAD_SCHEMA, message)
        schema = WriterSchema(found.schema.text, found.schema.references, written.message)
        writer = _writer(self._kind, self._make, schema, self._options, self._rows)
        if isinstance(writer, str):
            raise ValueProblem(BAD_SCHEMA, f"needs a schema that can be read, found {written.schema}: {writer}")
        return writer

    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self._schema)

    def _merged(self, parts: list[Decoded], failures: list[Failure], tombstones: np.ndarray) -> Decoded:
        rows = [part.rows for part in parts if part.rows.num_rows]
        positions = np.concatenate([part.positions for part in parts] or [np.zeros(0, np.int64)])
        together = pa.Table.from_batches(rows, schema=self._schema).combine_chunks()
        if len(rows) > 1:
            order = np.argsort(positions, kind="stable")
            together, positions = together.take(pa.array(order)), positions[order]
        batches = together.combine_chunks().to_batches()
        unknown: dict[str, int] = {}
        for part in parts:
            for path, count in part.unknown_fields.items():
                unknown[path] = unknown.get(path, 0) + count
        return Decoded(
            batches[0] if batches else self._no_rows(),
            positions,
            sorted([*failures, *(each for part in parts for each in part.failures)], key=lambda each: each.row),
            tombstones,
            unknown,
            tuple(need for part in parts for need in part.needs),
        )


@dataclass(frozen=True, slots=True)
class _Writer:
    """A writer schema's decoder, and what brings its rows to the stream's columns."""

    decoder: WriterDecoder
    conform: Conform


def _of_format(kind: RegistryKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a decoder of one writer schema takes."""
    return {name: value for name, value in options.items() if kind.more_fields or name not in _OWN_OPTIONS}


@lru_cache(maxsize=MOST_WRITERS)
def _writer(
    kind: RegistryKind, make: MakeWriterDecoder, schema: WriterSchema, options: tuple[tuple[str, Any], ...], rows: str
) -> _Writer | str:
    """The decoder of a writer schema, or why there is none."""
    try:
        decoder = make(schema, _of_format(kind, dict(options)))
    except BadWriterSchema as problem:
        return problem.message
    given = dict(options)
    policy: EvolutionPolicy = given.get("evolve", NO_EVOLUTION)
    extra: Extra = "propose" if policy.add == "propose" else given.get("unknown_fields", "ignore")
    conform = Conform(decoder.schema, Schema.model_validate_json(rows), extra, dict(given.get("refused", ())))
    conform.needs = tuple(need for need in conform.needs if policy.answer(need.change) != "ignore")
    return _Writer(decoder, conform)
