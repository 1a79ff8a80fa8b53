"""Decoder and format interfaces: what is asked of a format's decoders, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder_spec import DecoderSpec
from jobs.records.formats.interface.problems import SCHEMA_CHANGE_REFUSED, change_refused
from jobs.records.schema.needs import Need

if TYPE_CHECKING:
    from jobs.records.formats.interface.writer_schema import WriterSchema

DECODE_VALUE = "decode_value"
"""The stage that refuses a value, as dead letters call it."""
DECODE_KEY = "decode_key"
"""The stage that refuses a key."""
KEY_PATH = "$key"
"""How paths of unknown fields begin that are a key's."""
DECODE_HEADER = "decode_header"
"""The stage that refuses a header."""

LONGEST_PATH = 200
MOST_UNKNOWN_PATHS = 100
OTHER_UNKNOWN_PATHS = "…"
"""What is counted in place of further paths in `Decoded.unknown_fields`, so that these have an end."""
LEFT_OUT = ""
"""Among fields that get no column, in place of the reason: a column of the name is filled from elsewhere, so none is
proposed for the field."""
WITHIN = "\0"
"""Among fields that get no column, behind a path: the field lies in one that has no column yet."""
EVERY_FIELD = "*"
"""Among fields that get no column, in place of a path: each that has none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a decoder failed for one row.

    Attributes:
        row: Index of the row in the block.
        stage: The stage that refused it, such as `decode_value`.
        error_class: Stable identifier of the reason.
        message: One sentence that names what was found and what is needed.
        field: JSON path such as `$.a.b[2]`; None when the whole record is at fault.
        before: The row as the stage met it, as JSON, of a stage that makes rows of rows.
    """

    row: int
    stage: str
    error_class: str
    message: str
    field: str | None
    before: str | None = None

    def at(self, row: int) -> Failure:
        """The failure of another row, for the same reason."""
        # `dataclasses.replace` would take a tenth of the time of a block with many failures.
        return Failure(row, self.stage, self.error_class, self.message, self.field, self.before)

    def saying(self, message: str) -> Failure:
        """The failure with another message."""
        return Failure(self.row, self.stage, self.error_class, message, self.field, self.before)

    def met(self, before: str) -> Failure:
        """The failure with the row as the stage met it."""
        return Failure(self.row, self.stage, self.error_class, self.message, self.field, before)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded block. `positions`, the rows of `failures` and `tombstones` partition `range(len(block))`.

    An undecided block has none of them.

    Attributes:
        rows: The good rows only.
        positions: `positions[i]` is the index in the block of `rows[i]`, ascending.
        failures: One for each row that failed, ascending by row.
        tombstones: Indices in the block of null values, ascending.
        unknown_fields: For each JSON path that is not declared (`$.items[].x`), in how many good rows it was met.
        needs: What the table would have to take for nothing of the block's records to be left out or refused; each
            with the least row of the block that needs it.
        undecided: Nothing is said of its records but what they need. Only a survey leaves a block so, see
            `jobs.records.formats.json.evolving`; nothing of it may be committed.
    """

    rows: pa.RecordBatch
    positions: npt.NDArray[np.int64]
    failures: list[Failure]
    tombstones: npt.NDArray[np.int64]
    unknown_fields: dict[str, int]
    needs: tuple[Need, ...] = ()
    undecided: bool = False


class UnknownField(NamedTuple):
    """A field that the schema does not name, in a record that has it.

    Attributes:
        row: Index of the record.
        within: JSON path of the struct that has the field.
        column: What would take it, as a guess; None if its name cannot be declared.
    """

    row: int
    within: str
    column: str | None


def undecided(nothing: pa.RecordBatch, needs: tuple[Need, ...]) -> Decoded:
    """A block of whose records nothing is said but what they need.

    Args:
        nothing: No rows, with the decoder's columns.
        needs: What they need.
    """
    none = np.zeros(0, np.int64)
    return Decoded(nothing, none, [], none, {}, needs, undecided=True)


def refused_change(row: int, why: str, place: str) -> Failure:
    """The failure of a record with a field that gets no column.

    Args:
        row: Index of the record.
        why: Why there is no column, as the end of a sentence.
        place: JSON path of the field.
    """
    return Failure(row, DECODE_VALUE, SCHEMA_CHANGE_REFUSED, change_refused(why), place)


def without_rows(decoded: Decoded, failures: Mapping[int, Failure], left: Collection[set[str]]) -> Decoded:
    """A decoded block without rows that fail after all.

    Args:
        decoded: The block.
        failures: By row.
        left: Of each, the fields without a column.
    """
    good = ~np.isin(decoded.positions, np.fromiter(failures, np.int64, len(failures)))
    unknown = dict(decoded.unknown_fields)
    for places in left:
        for place in places:
            name = place if place in unknown else OTHER_UNKNOWN_PATHS
            if unknown.get(name, 0) > 1:
                unknown[name] -= 1
            else:
                unknown.pop(name, None)
    return replace(
        decoded,
        rows=decoded.rows.filter(pa.array(good)),
        positions=decoded.positions[good],
        failures=sorted([*decoded.failures, *failures.values()], key=lambda each: each.row),
        unknown_fields=unknown,
    )


class ValueDecoder(Protocol):
    """Decodes a block of Kafka values. Every decoder of one schema must give what the reference decoder gives."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        ...


def shortened_path(path: str) -> str:
    """The path of an unknown field as a decoder counts it: a key may be long, or do things to a terminal."""
    if path.isprintable() and len(path) <= LONGEST_PATH:
        return path
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in path[:LONGEST_PATH])
    return shown if len(path) <= LONGEST_PATH else f"{shown}…"


WriterRows: TypeAlias = "Callable[[WriterSchema, Mapping[str, Any]], Schema]"
MakeDecoder: TypeAlias = Callable[[DecoderSpec], ValueDecoder]
FindUnknown: TypeAlias = Callable[[DecoderSpec, pa.BinaryArray, Iterable[int], Iterable[str]], dict[str, UnknownField]]


@dataclass(frozen=True, slots=True)
class Format:
    """One way in which values can be written.

    Attributes:
        name: What `decode.value` says.
        reference: Makes the decoder that says what a value means.
        block: Makes the decoder for blocks of many records; it gives what the reference gives.
        probe: A value that the decoders take, if only to refuse it: one that raises for it can decode nothing.
        unknown_fields: Finds, in values, fields that the schema does not name: in these rows, by their paths as
            `Decoded.unknown_fields` has them. Of a path none may be found.
        json_fields: Whether a value is JSON, in which fields can be told apart to mask some of them.
        registry_kind: What schema registries call the schemas of records; None of a format that needs no registry.
        writer_rows: The columns of records of one writer schema, by the schema and the format's options; raises
            `BadWriterSchema`. None of a format without writer schemas.
    """

    name: str
    reference: MakeDecoder
    block: MakeDecoder
    probe: bytes
    unknown_fields: FindUnknown
    json_fields: bool
    registry_kind: str | None = None
    writer_rows: WriterRows | None = None

    @property
    def surveys(self) -> bool:
        """Whether its decoders can leave records that need a wider, or an optional, column undecided."""
        return self.name == "json" or self.writer_rows is not None
