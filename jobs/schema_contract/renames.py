"""Renames of a subject's fields: a column that its newest version lacks, and a field that it has anew, may be the same.

The table alone does not always tell: it keeps every column that was ever there. So the version before is looked at as
well. A rename is told to people and never made by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.schema.difference import differences
from jobs.schema.name_matching import with_column_names
from jobs.schema.rename import RenameSuggestion, rename_suggestions
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.schema.schema_change import columns_of
from jobs.spec.models import StreamSpec


def subject_renames(
    spec: StreamSpec, rows: Schema, metadata: TableMetadata, before: Schema | None = None
) -> tuple[RenameSuggestion, ...]:
    """Columns of a stream's table that may be called otherwise in records of a writer schema.

    Args:
        spec: The stream.
        rows: The fields of the records, with the types that their schema gives them.
        metadata: Of the stream's table.
        before: The fields of the schema before, if there is one that was asked for.
    """
    if spec.shapes:
        # The table's columns are those behind the steps, which name them.
        return ()
    columns = spec.resolved_for(metadata.schema(), metadata.properties)
    own = {EXTRA_COLUMN}
    fields = with_column_names(rows, columns.schema, columns.names)
    found = rename_suggestions(differences(fields, columns.schema, own=own), fields, columns.schema, own=own)
    if before is not None:
        former = with_column_names(before, columns.schema, columns.names)
        known = {path for path, _ in columns_of(columns.schema)}
        told = {each.new for each in found}
        found += [
            each
            for each in rename_suggestions(differences(fields, former), fields, former)
            if each.old in known and each.new not in known and each.new not in told
        ]
    return tuple(found)


def renames_sentence(stream: str, renames: Iterable[RenameSuggestion]) -> str:
    """What somebody can do about columns that may be called otherwise, before their records come."""
    told = [f"{each}: frazil schema apply {stream} {each.option} keeps its values together" for each in renames]
    return f"Nothing is renamed by itself; {'; '.join(told)}."
