"""Earlier rows of a table that others made: how many do not say which record they are of, by metadata alone."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table

from jobs.config.values.targets import TargetSpec
from jobs.tables.write.table_remaking import is_made_by_frazil


def earlier_rows(table: Table, target: TargetSpec) -> int:
    """How many rows in the data files of a table have no offset; those that deletes take out are among them.

    Files that were written before the table had the column say nothing of it; of others their statistics tell how many
    values are null. A table that frazil made has none, and is not looked at.

    Args:
        table: A table of rows, as the stream's branch has it.
        target: What the stream says of it.
    """
    head, offset = table.metadata.current_snapshot(), target.coordinates[2]
    if head is None or offset not in table.schema().column_names or is_made_by_frazil(table.metadata):
        return 0
    column, rows = table.schema().find_field(offset).field_id, 0
    for manifest in head.manifests(table.io):
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                rows += (file.null_value_counts or {}).get(column, file.record_count)
    return rows


def earlier_rows_sentence(table: str, rows: int) -> str:
    """The count in words."""
    many = "1 row that does" if rows == 1 else f"{rows:,} rows that do"
    return f"table {table} has {many} not say which record it is of: others wrote them, and they are not counted"
