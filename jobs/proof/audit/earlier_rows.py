"""Earlier rows of a table that others created: the number without coordinates, by metadata only."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table

from jobs.config.values.targets import TargetSpec
from jobs.tables.write.table_remaking import is_made_by_frazil


def earlier_rows(table: Table, target: TargetSpec) -> int:
    """Number of rows in a table's data files without an offset, rows with deletes included.

    Files older than the column do not have it. The statistics of other files have the number of nulls. A table that
    frazil created has none, and is not checked.

    Args:
        table: A table of rows, seen from the stream's branch.
        target: The stream's target.
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
    """Sentence with the number."""
    if rows == 1:
        return f"table {table} has 1 row without a Kafka offset: another writer added it, and it is not counted"
    return f"table {table} has {rows:,} rows without Kafka offsets: other writers added them, and they are not counted"
