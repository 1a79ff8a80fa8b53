"""Forecast of the effect on records of a writer schema, or on example records, before the first one arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import changed_columns
from jobs.quality.schema_checks.finding import ContractFinding
from jobs.records.formats.conform_values import conversion
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.difference import Difference, RenameSuggestion, differences
from jobs.records.schema.evolution import Evolution
from jobs.records.schema.name_matching import with_column_names
from jobs.records.schema.needs import (
    Change,
    Coordinates,
    Path,
    RecordNeed,
)
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.tables.commit.schema.followers import needed_changes

_NOWHERE = Coordinates("", 0, 0)
_FITS = {"gone": "null in their rows", "narrowed": "the column's type fits it", "now_required": "the column takes it"}
_IGNORED: dict[Change, str] = {
    "widen": "values that the column cannot store become dead letters",
    "relax": "records without it become dead letters",
}


NO_TABLES: Mapping[str, TableMetadata] = MappingProxyType({})


def forecast(
    spec: StreamSpec, rows: Schema, metadata: TableMetadata, followers: Mapping[str, TableMetadata] = NO_TABLES
) -> list[ContractFinding]:
    """Effects of differences between records of a writer schema and a stream's columns.

    Args:
        rows: Fields of the records, with the types of their schema.
        metadata: Metadata of the main table.
        followers: Metadata of its dependent tables, by name; the main table does not get what one of them cannot take.
    """
    table = metadata.schema()
    columns = spec.resolved_for(table, metadata.properties)
    rows = with_column_names(rows, columns.schema, columns.names)
    found = differences(rows, columns.schema, own={EXTRA_COLUMN})
    needed = [RecordNeed(each.needs.change, each.needs.path, each.needs.type, _NOWHERE) for each in found if each.needs]
    verdict = needed_changes(spec, needed, metadata, followers=followers or None)
    return [_finding(spec, each, verdict, metadata) for each in found]


def _finding(spec: StreamSpec, difference: Difference, verdict: Evolution, metadata: TableMetadata) -> ContractFinding:
    if difference.fits:
        return ContractFinding(difference, "null" if difference.kind == "gone" else "lands", _FITS[difference.kind])
    if difference.needs is not None:
        return _needed(spec, difference, difference.needs.change, difference.needs.path, verdict, metadata)
    if difference.kind == "case":
        return _other_case(spec, difference)
    rows, table = difference.rows, difference.table
    both = (rows.field_type, table.field_type) if rows and table else None
    if both and conversion(*both) is not None:
        return ContractFinding(difference, "dead_letter", "only values that the column can store exactly land")
    return ContractFinding(difference, "dead_letter", "no value of it is one of the column's")


def _needed(
    spec: StreamSpec,
    difference: Difference,
    change: Change,
    path: Path,
    verdict: Evolution,
    metadata: TableMetadata,
) -> ContractFinding:
    answer = getattr(spec.evolution, change)
    match answer:
        case "auto":
            if why := next((each.why for each in verdict.refused if each.path[: len(path)] == path), None):
                return ContractFinding(difference, "dead_letter", f"the table is not changed: {why}")
            made = tuple(each for each in verdict.changes if (each.change, each.path) == (change, path))
            changed = changed_columns(spec, metadata, made).sentences if spec.shapes else map(str, made)
            return ContractFinding(
                difference, "changes_table", "; ".join(changed) or "the table is changed with the first record"
            )
        case "propose":
            return ContractFinding(difference, "proposed", f"evolve.{change} is propose: dead letters until it is made")
        case "fail":
            return ContractFinding(difference, "stops", f"evolve.{change} is fail")
        case _ if change == "add":
            return _left_out(spec, difference)
        case _:
            return ContractFinding(difference, "dead_letter", _IGNORED[change])


def _left_out(spec: StreamSpec, difference: Difference) -> ContractFinding:
    if spec.decode.unknown_fields == "fail":
        return ContractFinding(difference, "dead_letter", "decode.unknown_fields is fail")
    if spec.decode.unknown_fields == "keep":
        return ContractFinding(difference, "lands", f"no column takes it: it is kept in {EXTRA_COLUMN}")
    return ContractFinding(difference, "left_out", "no column takes it: it is left out and counted")


def _other_case(spec: StreamSpec, difference: Difference) -> ContractFinding:
    required = difference.table is not None and difference.table.required
    if required or spec.evolution.add != "ignore":
        return ContractFinding(difference, "dead_letter", "names that differ by case only are never one column")
    return _left_out(spec, difference)


@dataclass(frozen=True, slots=True)
class ExamplesContract:
    """Fate of example records.

    Attributes:
        records: Number of records, without tombstones.
        failures: Failures of dead letters; `row` counts from zero.
        left_out: Number of records by the path of a field without a column.
        renames: Columns that may have another name in the records.
    """

    records: int
    failures: tuple[Failure, ...] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    renames: tuple[RenameSuggestion, ...] = ()


def examples_contract(spec: StreamSpec, metadata: TableMetadata, lines: list[bytes]) -> ExamplesContract:
    """Decode records by the stream's reference decoder.

    Args:
        spec: A stream whose records name no writer schema.
        metadata: Metadata of the main table.
        lines: Records, one each.
    """
    decoder = spec.resolved_for(metadata.schema(), metadata.properties).decoder
    decoded = FORMATS[decoder.kind].reference(decoder).decode(pa.array(lines, pa.binary()))
    renames = dict.fromkeys(RenameSuggestion(each.former, each.path) for each in decoded.needs if each.former)
    return ExamplesContract(len(lines), tuple(decoded.failures), Counter(decoded.unknown_fields), tuple(renames))
