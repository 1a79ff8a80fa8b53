"""Interfaces of decoders and formats, and the results of decoding."""

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
"""The stage that refuses a value, as dead letters name it."""
DECODE_KEY = "decode_key"
"""The stage that refuses a key."""
KEY_PATH = "$key"
"""The beginning of paths of a key's unknown fields."""
DECODE_HEADER = "decode_header"
"""The stage that refuses a header."""

LONGEST_PATH = 200
MOST_UNKNOWN_PATHS = 100
OTHER_UNKNOWN_PATHS = "…"
"""The path that counts all further paths in `Decoded.unknown_fields`, to bound their number."""
LEFT_OUT = ""
"""A reason for a field that gets no column: a column of the name is filled from another source, so none is proposed for
the field.
"""
WITHIN = "\0"
"""The end of a path among fields that get no column: the field lies in one that has no column yet."""
EVERY_FIELD = "*"
"""A path among fields that get no column: it stands for every field without a column."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a decoder failed for one row.

    Attributes:
        row: Index of the row in the block.
        stage: The stage that refused it, such as `decode_value`.
        error_class: Stable identifier of the reason.
        message: One sentence that names what was found and what is needed.
        field: JSON path such as `$.a.b[2]`; None if the whole record is at fault.
        before: The row before the stage, as JSON, if the stage is a step.
    """

    row: int
    stage: str
    error_class: str
    message: str
    field: str | None
    before: str | None = None

    def at(self, row: int) -> Failure:
        """Return the failure of another row, for the same reason."""
        # `dataclasses.replace` would take a tenth of the time of a block with many failures.
        return Failure(row, self.stage, self.error_class, self.message, self.field, self.before)

    def saying(self, message: str) -> Failure:
        """Return the failure with another message."""
        return Failure(self.row, self.stage, self.error_class, message, self.field, self.before)

    def met(self, before: str) -> Failure:
        """Return the failure with the row before the stage."""
        return Failure(self.row, self.stage, self.error_class, self.message, self.field, before)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded block. `positions`, the rows of `failures` and `tombstones` partition `range(len(block))`.

    An undecided block has none of them.

    Attributes:
        rows: The good rows.
        positions: `positions[i]` is the index in the block of `rows[i]`, ascending.
        failures: One for each row that failed, ascending by row.
        tombstones: Indices in the block of null values, ascending.
        unknown_fields: Number of good rows that have a field, by its JSON path, for each undeclared path
            (`$.items[].x`).
        needs: Changes of the table without which records are left out or refused; each with the lowest row of the block
            that needs it.
        undecided: Whether only the needs of the records are known. Only a survey leaves a block so, see
            `jobs.records.formats.json.evolving`; no row of it may be committed.
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
        column: A column that could take it, as a guess; None if its name cannot be declared.
    """

    row: int
    within: str
    column: str | None


def undecided(nothing: pa.RecordBatch, needs: tuple[Need, ...]) -> Decoded:
    """Return a block of whose records only the needs are known.

    Args:
        nothing: A batch without rows, with the decoder's columns.
        needs: Needs of the records.
    """
    none = np.zeros(0, np.int64)
    return Decoded(nothing, none, [], none, {}, needs, undecided=True)


def refused_change(row: int, why: str, place: str) -> Failure:
    """Return the failure of a record with a field that gets no column.

    Args:
        row: Index of the record.
        why: Why there is no column, as the end of a sentence.
        place: JSON path of the field.
    """
    return Failure(row, DECODE_VALUE, SCHEMA_CHANGE_REFUSED, change_refused(why), place)


def without_rows(decoded: Decoded, failures: Mapping[int, Failure], left: Collection[set[str]]) -> Decoded:
    """Return a decoded block without rows that fail after all.

    Args:
        decoded: The block.
        failures: Failures by row.
        left: For each of these rows, its fields without a column.
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
    """Decodes blocks of Kafka values. Every decoder of one schema must give the same as the reference decoder."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        ...


def shortened_path(path: str) -> str:
    """Return an unknown field's path as decoders count it: cut and escaped, as keys may be long or unprintable."""
    if path.isprintable() and len(path) <= LONGEST_PATH:
        return path
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in path[:LONGEST_PATH])
    return shown if len(path) <= LONGEST_PATH else f"{shown}…"


WriterRows: TypeAlias = "Callable[[WriterSchema, Mapping[str, Any]], Schema]"
MakeDecoder: TypeAlias = Callable[[DecoderSpec], ValueDecoder]
FindUnknown: TypeAlias = Callable[[DecoderSpec, pa.BinaryArray, Iterable[int], Iterable[str]], dict[str, UnknownField]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of values.

    Attributes:
        name: The value of `decode.value`.
        reference: Makes the reference decoder, which defines what a value means.
        block: Makes the decoder for blocks of many records; it gives what the reference gives.
        probe: A value that every working decoder accepts or refuses; one that raises for it can decode nothing.
        unknown_fields: Finds undeclared fields in values: in these rows, by their paths as in `Decoded.unknown_fields`.
            It may find none of a path.
        json_fields: Whether a value is JSON, so that some of its fields can be masked.
        registry_kind: Name of the kind of schema in registries; None for a format that needs no registry.
        writer_rows: Returns the columns of records of one writer schema, by the schema and the format's options; raises
            `BadWriterSchema`. None for a format without writer schemas.
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
        """Return whether its decoders can leave records undecided that need a wider or an optional column."""
        return self.name == "json" or self.writer_rows is not None
