"""Declared columns compared with their table: whether a driver with this file would start, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import NO_PROPERTIES, StreamSpec
from jobs.quality.schema_checks.finding import ContractFinding, Outcome
from jobs.records.schema.difference import (
    Difference,
    DifferenceKind,
    RenameSuggestion,
    differences,
    rename_suggestions,
)
from jobs.records.schema.identifier_fields import identifier_names

_FITS: Mapping[DifferenceKind, tuple[Outcome, str]] = {
    "gone": ("null", "null in new rows"),
    "narrowed": ("lands", "the table's type fits it"),
    "now_required": ("lands", "records without it become dead letters"),
}
_ALTERED: Mapping[DifferenceKind, str] = {
    "added": "the table lacks it",
    "widened": "the table's type does not fit it",
    "now_optional": "the table requires it",
    "gone": "the table requires it",
}
_REFUSED: Mapping[DifferenceKind, str] = {
    "other_type": "no change of the table brings one type to the other",
    "case": "names that differ by case only cannot stand beside each other",
}


@dataclass(frozen=True, slots=True)
class DeclaredContract:
    """Declared columns of a stream's file, compared with its table.

    Attributes:
        findings: Every difference, with its effect.
        renames: Columns that may have another name in the file.
    """

    findings: tuple[ContractFinding, ...]
    renames: tuple[RenameSuggestion, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether a driver with this file would start."""
        return all(finding.outcome != "stops" for finding in self.findings)

    @property
    def can_be_applied(self) -> bool:
        """Whether a change of the table lets it start."""
        return all(each.outcome != "stops" or each.difference.needs is not None for each in self.findings)


def own_columns(spec: StreamSpec) -> frozenset[str]:
    """Columns of the stream's table that no file declares: those of coordinates, or a key's that the table has."""
    key = spec.record_columns.key
    of_key = key.names if key is not None and not key.is_resolved and not spec.shapes else ()
    return spec.kafka_columns.names | {*of_key}


def declared_columns(
    spec: StreamSpec,
    name: str | None = None,
    table: Schema | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Schema:
    """Columns that the stream's file declares for values, keys and headers, after its transforms.

    Args:
        name: Name of a table of rows; None for the main table.
        table: Schema of the table, for what the file leaves to it.
    """
    if spec.shapes and table is not None:
        decoded = spec.record_columns_for(table, properties).beside(spec.resolved_for(table, properties).schema)
        return spec.columns_in(name, spec.transformed(decoded))
    columns = spec.record_columns
    if columns.key is not None and not columns.key.is_resolved:
        columns = replace(columns, key=None)
    return spec.columns_in(name, spec.transformed(columns.beside(spec.declared_rows)))


def declared_contract(
    spec: StreamSpec, table: Schema, name: str | None = None, *, properties: Mapping[str, str] = NO_PROPERTIES
) -> DeclaredContract:
    """Compare the declared columns of a stream's file with its table.

    Args:
        spec: A stream whose file declares its columns.
        table: Schema of the table.
        name: Name of the table; None for the main table.
    """
    rows, own = declared_columns(spec, name, table, properties), own_columns(spec)
    found = differences(rows, table, own=own)
    return DeclaredContract(tuple(map(_finding, found)), tuple(rename_suggestions(found, rows, table, own=own)))


def _finding(difference: Difference) -> ContractFinding:
    if difference.fits:
        outcome, why = _FITS[difference.kind]
        return ContractFinding(difference, outcome, why)
    if difference.needs is not None:
        return ContractFinding(difference, "stops", _ALTERED[difference.kind])
    return ContractFinding(difference, "stops", _REFUSED[difference.kind])


def identifier_sentence(spec: StreamSpec, table: Schema) -> str | None:
    """Difference of a table's identifier fields from those in the stream's file; None without one."""
    names, actual = spec.table.identifier_names, identifier_names(table)
    if not names or names == actual:
        return None
    has = f"are {', '.join(actual)}" if actual else "are not set"
    return f"the identifier fields of table {spec.table.name} {has}; the stream's file has {', '.join(names)}"


def schema_name(metadata: TableMetadata) -> str:
    """Name of a table's schema version in messages."""
    return f"schema {metadata.current_schema_id}"
