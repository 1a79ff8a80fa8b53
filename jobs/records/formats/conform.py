"""Conform rows of a writer schema to the columns of a stream: by name, each value exactly as it was, or not at all.

Differences between a writer schema and the stream's columns are judged once, when the plan for the two is made
(`jobs.records.formats.conform_plan`). A field that no column takes is left out and counted; a column that no field
fills is null. If a column's type does not hold a field's type, but both are of one kind, each value is checked (a long
that an int holds lands); otherwise each record that has the field fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.conform_place import (
    Indices,
    Mask,
    Place,
    elements,
    entries,
    everywhere,
    own_offsets,
    top,
)
from jobs.records.formats.conform_plan import (
    Clash,
    ColumnPlan,
    Convert,
    ListPlan,
    MapPlan,
    Same,
    StructPlan,
    arrow_kind,
    needs,
    struct_plan,
)
from jobs.records.formats.interface.decoder import (
    DECODE_VALUE,
    EVERY_FIELD,
    LEFT_OUT,
    MOST_UNKNOWN_PATHS,
    OTHER_UNKNOWN_PATHS,
    Decoded,
    Failure,
    UnknownField,
    refused_change,
    undecided,
)
from jobs.records.formats.interface.decoder_spec import DecoderSpec, RowsSchema
from jobs.records.formats.interface.problems import (
    AMBIGUOUS_FIELD,
    CHANGE_PROPOSED,
    MISSING_FIELD,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    SCHEMA_CHANGE_PROPOSED,
    SCHEMA_CHANGE_REFUSED,
    UNKNOWN_FIELD,
    WRONG_TYPE,
    ambiguous_field,
    change_refused,
    shown_key,
)
from jobs.records.formats.interface.writer_schema import (
    BadWriterSchema,
    MakeWriterDecoder,
    WriterDecoder,
    WriterSchema,
)
from jobs.records.formats.rescued_fields import conformed_rows, rescued_fields
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.declared import quoted
from jobs.records.schema.difference import with_former_column
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.name_matching import EXACT_NAMES, NAME_RULE, NameRule
from jobs.records.schema.needs import NO_EVOLUTION, EvolutionPolicy, Need
from jobs.records.schema.rescued_data import (
    EXTRA_COLUMN,
    EXTRA_NEED,
    EXTRA_PLACE,
    without_extra_column,
)

NOTHING_REFUSED: Mapping[str, str] = MappingProxyType({})


class Conform:
    """Brings rows of one writer schema to a stream's columns.

    Args:
        writer: The fields of the rows.
        rows: The stream's columns, without those that say where rows came from.
        extra: What happens to a field that no column takes.
        refused: Fields that get no column, by their JSON path, with the reason; records that have one fail.
        names: How fields and columns are matched.

    Attributes:
        needs: Changes of the table without which records of this writer schema lose a field, or may be refused.
    """

    def __init__(
        self,
        writer: Schema,
        rows: Schema,
        extra: Extra = "ignore",
        refused: Mapping[str, str] = NOTHING_REFUSED,
        names: NameRule = EXACT_NAMES,
    ) -> None:
        self._extra: Extra = extra
        self._refused: Mapping[str, str] = refused
        self._schema: pa.Schema = rows_arrow_schema(rows)
        self._relaxed: pa.Schema = pa.schema([each.with_nullable(True) for each in self._schema])
        self._names: tuple[str, ...] = tuple(each.name for each in rows.fields)
        columns = without_extra_column(rows) if extra == "keep" else rows
        self._plan: StructPlan = struct_plan(writer.as_struct(), columns.as_struct(), names)
        self.needs: tuple[Need, ...] = with_former_column(tuple(needs(self._plan)), writer, columns, names)

    def apply(self, decoded: Decoded) -> Decoded:
        """Return the rows in the stream's columns; rows that the columns do not hold become failures.

        Args:
            decoded: A block from a decoder of the writer schema.
        """
        count, positions = decoded.rows.num_rows, decoded.positions
        work = ConformWork(self._extra, self._refused)
        arrays = work.columns(self._plan, decoded.rows.columns, top(count))
        found = self._needed(work, decoded, self.needs)
        if self._extra == "keep":
            found = (*found, *self._keep(work, decoded, arrays))
        if not work.refused:
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            unknown = decoded.unknown_fields | work.counts(np.ones(count, np.bool_))
            return Decoded(rows, positions, decoded.failures, decoded.tombstones, unknown, found)
        good = np.ones(count, np.bool_)
        good[list(work.refused)] = False
        # A refused value of a required column is null until its row is dropped.
        kept = pa.RecordBatch.from_arrays(arrays, schema=self._relaxed).filter(pa.array(good))
        failures = [failure.at(int(positions[row])) for row, failure in work.refused.items()]
        return Decoded(
            pa.RecordBatch.from_arrays(kept.columns, schema=self._schema),
            positions[good],
            sorted([*decoded.failures, *failures], key=lambda failure: failure.row),
            decoded.tombstones,
            decoded.unknown_fields | work.counts(good),
            found,
        )

    def surveyed(self, decoded: Decoded, if_beyond: Callable[[Need], bool] = lambda _: False) -> Decoded | None:
        """Return the needs of a block whose rows need some column changed; None for any other block.

        Unknown fields are not reported: a task that surveys runs again.

        Args:
            decoded: A block from a decoder of the writer schema.
            if_beyond: Tells the needs that count only if some value is out of its column's range.
        """
        if all(need.change == "add" for need in self.needs):
            return None
        work = ConformWork(self._extra, self._refused, count := decoded.rows.num_rows)
        arrays = work.columns(self._plan, decoded.rows.columns, top(count))
        needs = self._needed(work, decoded, [each for each in self.needs if work.beyond or not if_beyond(each)])
        if all(need.change == "add" for need in needs):
            return None
        if self._extra == "keep" and EXTRA_COLUMN not in self._names:
            needs = (*needs, *self._keep(work, decoded, arrays))
        return undecided(pa.RecordBatch.from_pylist([], schema=self._schema), needs)

    def _needed(self, work: ConformWork, decoded: Decoded, needs: Sequence[Need]) -> tuple[Need, ...]:
        """Return the decoder's needs, and the given needs for the first row that they would let land."""
        count = decoded.rows.num_rows
        if not needs or len(work.hopeless) >= count:
            return decoded.needs
        first = next(row for row in range(count) if row not in work.hopeless)
        return (*decoded.needs, *(need.at(int(decoded.positions[first])) for need in needs))

    def _keep(self, work: ConformWork, decoded: Decoded, arrays: list[pa.Array]) -> Iterator[Need]:
        """Put fields without a column into the column that keeps them; without it, yield a need or refuse the rows."""
        rescued = rescued_fields(self._plan, decoded.rows)
        if EXTRA_COLUMN in self._names:
            arrays.insert(self._names.index(EXTRA_COLUMN), pa.array(rescued, pa.string()))
            work.extra.clear()
            return
        rows = [row for row, text in enumerate(rescued) if text is not None and row not in work.hopeless]
        why = self._refused.get(EXTRA_PLACE)
        if why is None and rows:
            yield EXTRA_NEED.at(int(decoded.positions[rows[0]]))
        elif why is not None:
            work.refused |= {row: refused_change(row, why, EXTRA_PLACE) for row in rows if row not in work.refused}

    def unknown_fields(self, decoded: Decoded) -> Iterator[tuple[str, UnknownField]]:
        """Yield each field that no column takes and that a record has, by its path, with the first such record."""
        work = ConformWork("ignore", NOTHING_REFUSED)
        work.columns(self._plan, decoded.rows.columns, top(decoded.rows.num_rows))
        for path, extra in work.extra.items():
            if len(extra.rows):
                column = f"{quoted(extra.field.name)} {schema_text(extra.field.field_type)}"
                yield path, UnknownField(int(decoded.positions[extra.rows[0]]), extra.within, column)


Extra: TypeAlias = Literal["ignore", "fail", "propose", "keep"]
"""What happens to a field that no column takes: it is left out and counted (`ignore`); its record fails (`fail`), or
fails until somebody decides about the column that is proposed for it (`propose`); or it is kept in a column with all
others (`keep`).
"""

_EXTRA = {
    "fail": (UNKNOWN_FIELD, "is not declared, and this stream refuses keys that are not declared"),
    "propose": (SCHEMA_CHANGE_PROPOSED, CHANGE_PROPOSED),
}


_OWN_COLUMN = (
    "; `frazil schema apply STREAM --rename %s=OTHER` keeps this column under another name, and with one of its own "
    "the record lands, by `frazil replay STREAM`"
)


@dataclass(frozen=True, slots=True)
class ExtraField:
    """A field that no column takes: the rows that have it, and the path of the struct that it is in."""

    field: ice.NestedField
    rows: Indices
    within: str


class ConformWork:
    """Conform the rows of one block.

    Args:
        extra: What happens to a field that no column takes.
        refused: Fields that get no column, by their JSON path, with the reason.
        unexplained: Number of rows of a block for which only the hopeless rows are noted, without reasons.

    Attributes:
        refused: The first reason against each row that has one.
        hopeless: Rows that no change of the table lets land.
        extra: The fields that no column takes, by path.
        beyond: Whether the first reason against an unexplained row is a value out of its column's range.
    """

    def __init__(self, extra: Extra, refused: Mapping[str, str], unexplained: int | None = None) -> None:
        self._met: Mask | None = None if unexplained is None else np.zeros(unexplained, np.bool_)
        self._extra: Extra = extra
        self._refused: Mapping[str, str] = refused
        self.refused: dict[int, Failure] = {}
        self.hopeless: set[int] = set()
        self.beyond: bool = False
        self.extra: dict[str, ExtraField] = {}

    def counts(self, good: Mask) -> dict[str, int]:
        """Return how many good rows have each field that no column takes."""
        counted = {path: int(good[extra.rows].sum()) for path, extra in self.extra.items()}
        return {path: count for path, count in counted.items() if count}

    def columns(self, plan: StructPlan, values: Sequence[pa.Array], place: Place) -> list[pa.Array]:
        for index, field in plan.extra:
            self._leave_out(field, values[index], place)
        return [self._filled(each, values, place.of(each.column.name)) for each in plan.columns]

    def _filled(self, plan: ColumnPlan, values: Sequence[pa.Array], place: Place) -> pa.Array:
        if plan.several:
            return self._of_several(plan, values, place)
        if plan.index is None:
            return self._missing(plan, place, len(place.rows))
        return self._column(plan, values[plan.index], place)

    def _of_several(self, plan: ColumnPlan, values: Sequence[pa.Array], place: Place) -> pa.Array:
        """Fill a column that several fields are for: a record may have a value in one of them; null is no value."""
        parts = [(each, values[each.index]) for each in plan.several if each.index is not None]
        there = np.array([np.asarray(part.is_valid()) for _, part in parts])
        filled = there.sum(axis=0)
        self._refuse(filled > 1, AMBIGUOUS_FIELD, ambiguous_field(plan.column.name, plan.names), place)
        made = [self._column(each, part, place) for each, part in parts]
        count = len(place.rows)
        whole = pa.concat_arrays(made).take(pa.array(there.argmax(axis=0) * count + np.arange(count)))
        if plan.refuses_null:
            self._refuse_null(plan.column, filled == 0, place)
        return whole

    def _leave_out(self, field: ice.NestedField, values: pa.Array, place: Place) -> None:
        there = place.within(values)
        rows = place.rows if there is None else place.rows[there]
        inner = place.of(shown_key(field.name))
        self.extra[inner.paths] = ExtraField(field, np.unique(rows), place.paths)
        why = self._refused.get(inner.paths, self._refused.get(EVERY_FIELD))
        if why == LEFT_OUT and self._extra == "propose":
            return
        refusal = (SCHEMA_CHANGE_REFUSED, change_refused(why)) if why else _EXTRA.get(self._extra)
        if refusal is not None and len(rows):
            proposed = refusal[0] == SCHEMA_CHANGE_PROPOSED
            self._refuse(everywhere(place) if there is None else there, *refusal, inner, cure=proposed)

    def _missing(self, plan: ColumnPlan, place: Place, count: int) -> pa.Array:
        if plan.column.required:
            missing = everywhere(place) if place.inside is None else place.inside
            message = f"needs {schema_text(plan.column.field_type)}, found no such key"
            self._refuse(missing, MISSING_FIELD, message, place, cure=True)
        return pa.nulls(count, arrow_kind(plan.column))

    def _column(self, plan: ColumnPlan, values: pa.Array, place: Place) -> pa.Array:
        if plan.refuses_null and values.null_count:
            self._refuse_null(plan.column, np.asarray(values.is_null()), place)
        kind = arrow_kind(plan.column)
        match plan.node:
            case Same():
                return values
            case Convert(apply, widened):
                made, refused = apply(values)
                for each in refused:
                    bad = np.zeros(len(values), np.bool_)
                    bad[each.indices] = True
                    self._refuse(bad, each.error_class, each.message, place, cure=widened is not None)
                return made
            case Clash(writer, column, former) as clash:
                there = place.within(values)
                message = f"needs {schema_text(column)}, found {schema_text(writer)}"
                if clash.got_fields:
                    message += _OWN_COLUMN % place.paths.removeprefix("$.")
                bad = everywhere(place) if there is None else there
                self._refuse(bad, WRONG_TYPE, message, place, cure=former is not None)
                return pa.nulls(len(values), kind)
            case StructPlan() as struct:
                inside = Place(place.rows, place.within(values), place.path, place.paths)
                children = self.columns(struct, values.flatten(), inside)
                fields = [kind.field(index) for index in range(kind.num_fields)]
                return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls(values))
            case ListPlan(element):
                offsets, start, end = own_offsets(values)
                inner = elements(place, offsets, place.within(values))
                made = self._column(element, values.values.slice(start, end - start), inner)
                return pa.ListArray.from_arrays(pa.array(offsets), made, type=kind, mask=_nulls(values))
            case MapPlan(key, value):
                offsets, start, end = own_offsets(values)
                inner = entries(place, offsets, place.within(values))
                keys = _filled(self._column(key, values.keys.slice(start, end - start), inner))
                items = self._column(value, values.items.slice(start, end - start), inner)
                return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind, mask=_nulls(values))

    def _refuse_null(self, column: ice.NestedField, null: Mask, place: Place) -> None:
        absent = null if place.inside is None else null & place.inside
        message = f"needs {schema_text(column.field_type)}, found null"
        self._refuse(absent, NULL_IN_REQUIRED, message, place, cure=True)

    def _refuse(self, bad: Mask, error_class: str, message: str, place: Place, *, cure: bool = False) -> None:
        indices = np.flatnonzero(bad)
        if self._met is not None:
            bad_rows = place.rows[indices]
            self.beyond |= error_class == OUT_OF_RANGE and not self._met[bad_rows].all()
            self._met[bad_rows] = True
            if not cure:
                self.hopeless.update(np.unique(bad_rows).tolist())
            return
        rows, first = np.unique(place.rows[indices], return_index=True)
        for row, index in zip(rows.tolist(), indices[first].tolist(), strict=True):
            if not cure:
                self.hopeless.add(row)
            if row not in self.refused:
                self.refused[row] = Failure(row, DECODE_VALUE, error_class, message, place.path(index))


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _filled(keys: pa.Array) -> pa.Array:
    """Return keys of maps with some value in place of the refused ones, whose rows are dropped."""
    if not keys.null_count:
        return keys
    some = pa.array([None], pa.struct([pa.field("key", keys.type, nullable=False)])).field(0)
    take = np.where(np.asarray(keys.is_null()), len(keys), np.arange(len(keys)))
    return pa.concat_arrays([keys, some]).take(pa.array(take))


MOST_WRITERS = 500
"""Limit of writer schemas whose decoders a process keeps."""

Options: TypeAlias = tuple[tuple[str, Any], ...]
"""Options of a format by name, in order; hashable."""


@runtime_checkable
class FindsUnknown(Protocol):
    """A decoder of writer schemas whose records may have fields that their own schema does not name."""

    def unknown_fields(self, values: pa.BinaryArray, paths: Iterable[str]) -> dict[str, UnknownField]:
        """Return those of the paths that these records have, each with the first field that was found."""
        ...


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer schema's decoder, with the step that conforms its rows to the stream's columns."""

    decoder: WriterDecoder
    conform: Conform

    def decode(self, values: pa.BinaryArray, *, survey: bool = False) -> Decoded:
        """Decode records of this writer schema to the stream's columns; a survey may give only their needs."""
        decoded = self.decoder.decode(values)
        told = self.conform.surveyed(decoded) if survey else None
        return self.conform.apply(decoded) if told is None else told

    def unknown_fields(self, values: pa.BinaryArray, paths: Iterable[str]) -> Iterator[tuple[str, UnknownField]]:
        """Yield the fields that no column takes, or that the writer schema does not name, by their paths."""
        yield from self.conform.unknown_fields(self.decoder.decode(values))
        if isinstance(self.decoder, FindsUnknown):
            yield from self.decoder.unknown_fields(values, paths).items()


@lru_cache(maxsize=MOST_WRITERS)
def writer_of(
    make: MakeWriterDecoder, schema: WriterSchema, given: Options, options: Options, rows: RowsSchema
) -> Writer | str:
    """Return the decoder of records of a writer schema, or why there is none.

    Args:
        make: Makes the decoder.
        schema: The writer schema.
        given: The options that the decoder takes.
        options: All options of the stream, with those for fields that no column takes and for the table's evolution.
        rows: The source of the stream's columns.
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
    """Number the rows of a part of a block as the block does.

    Args:
        part: The part's records, by their index in it.
        rows: For each record of the part, its row in the block.
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
    """Merge the parts of a block.

    Args:
        parts: Parts by the block's rows; each row is in at most one of them.
        failures: Failures of records that are in no part.
        tombstones: Tombstones of the whole block.
        schema: The schema of the stream's rows.
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
