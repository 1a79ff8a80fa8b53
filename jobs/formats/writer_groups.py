"""Writer groups: records of one writer schema, decoded, conformed to the stream's columns, and put in order again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.formats.conform import Conform, Extra
from jobs.formats.decoder import MOST_UNKNOWN_PATHS, OTHER_UNKNOWN_PATHS, Decoded, Failure, UnknownField, undecided
from jobs.formats.decoder_spec import DecoderSpec, RowsSchema
from jobs.formats.rescued_fields import conformed_rows
from jobs.formats.writer_schema import BadWriterSchema, MakeWriterDecoder, WriterDecoder, WriterSchema
from jobs.schema.name_matching import EXACT_NAMES, NAME_RULE
from jobs.schema.needs import NO_EVOLUTION, EvolutionPolicy, Need

MOST_WRITERS = 500
"""Writer schemas whose decoders a process keeps."""

Options: TypeAlias = tuple[tuple[str, Any], ...]
"""Of a format, by name, in order; hashable."""

Indices: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class FindsUnknown(Protocol):
    """A decoder of writer schemas whose records may have fields that their own schema does not name."""

    def unknown_fields(self, values: pa.BinaryArray, paths: Iterable[str]) -> dict[str, UnknownField]:
        """Of those paths, the ones that are met in these records, each with the first one that was found."""
        ...


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer schema's decoder, and what brings its rows to the stream's columns."""

    decoder: WriterDecoder
    conform: Conform

    def decode(self, values: pa.BinaryArray, *, survey: bool = False) -> Decoded:
        """Records of this writer schema in the stream's columns; in a survey perhaps their needs alone."""
        decoded = self.decoder.decode(values)
        told = self.conform.surveyed(decoded) if survey else None
        return self.conform.apply(decoded) if told is None else told

    def unknown_fields(self, values: pa.BinaryArray, paths: Iterable[str]) -> Iterator[tuple[str, UnknownField]]:
        """Fields that no column takes, or that the writer schema does not name, by their paths."""
        yield from self.conform.unknown_fields(self.decoder.decode(values))
        if isinstance(self.decoder, FindsUnknown):
            yield from self.decoder.unknown_fields(values, paths).items()


@lru_cache(maxsize=MOST_WRITERS)
def writer_of(
    make: MakeWriterDecoder, schema: WriterSchema, given: Options, options: Options, rows: RowsSchema
) -> Writer | str:
    """What decodes records of a writer schema, or why there is nothing that does.

    Args:
        make: Makes the decoder.
        schema: The writer schema.
        given: The options that the decoder takes.
        options: All that the stream has: what becomes of fields that no column takes, and how its table evolves.
        rows: Where the stream's columns are from.
    """
    try:
        decoder = make(schema, dict(given))
    except BadWriterSchema as problem:
        return problem.message
    said = dict(options)
    policy: EvolutionPolicy = said.get("evolve", NO_EVOLUTION)
    extra: Extra = "propose" if policy.add == "propose" else said.get("unknown_fields", "ignore")
    refused, names = dict(said.get("refused", ())), said.get(NAME_RULE, EXACT_NAMES)
    conform = Conform(decoder.schema, conformed_rows(DecoderSpec("", rows, said)), extra, refused, names)
    conform.needs = tuple(need for need in conform.needs if policy.answer(need.change) != "ignore")
    return Writer(decoder, conform)


def by_rows(part: Decoded, rows: Indices) -> Decoded:
    """A part of a block by the block's own rows.

    Args:
        part: Its records, by their index in it.
        rows: Of each, the row in the block.
    """
    return Decoded(
        part.rows,
        rows[part.positions],
        [failure.at(int(rows[failure.row])) for failure in part.failures],
        rows[part.tombstones],
        part.unknown_fields,
        tuple(need.at(int(rows[need.row])) for need in part.needs),
        part.undecided,
    )


def merged(parts: Sequence[Decoded], failures: Iterable[Failure], tombstones: Indices, schema: pa.Schema) -> Decoded:
    """One block of its parts.

    Args:
        parts: By the block's rows; each row in one of them at most.
        failures: Of records that are in none.
        tombstones: Of the whole block.
        schema: Of the stream's rows.
    """
    batches = [part.rows for part in parts if part.rows.num_rows]
    positions = np.concatenate([part.positions for part in parts] or [np.zeros(0, np.int64)])
    rows = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) > 1:
        order = np.argsort(positions, kind="stable")
        rows, positions = pa.concat_batches(batches).take(pa.array(order)), positions[order]
    unknown: dict[str, int] = {}
    for part in parts:
        for path, count in part.unknown_fields.items():
            counted = path if path in unknown or len(unknown) < MOST_UNKNOWN_PATHS else OTHER_UNKNOWN_PATHS
            unknown[counted] = unknown.get(counted, 0) + count
    needs: dict[tuple[str, tuple[str, ...], str], Need] = {}
    for need in (need for part in parts for need in part.needs):
        # Iceberg's nested types that are equal may have different hashes.
        key = (need.change, need.path, str(need.type))
        if key not in needs or need.row < needs[key].row:
            needs[key] = need
    if any(part.undecided for part in parts):
        return undecided(rows.slice(0, 0), tuple(needs.values()))
    return Decoded(
        rows,
        positions,
        sorted([*failures, *(each for part in parts for each in part.failures)], key=lambda each: each.row),
        tombstones,
        unknown,
        tuple(needs.values()),
    )
