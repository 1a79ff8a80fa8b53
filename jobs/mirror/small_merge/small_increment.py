"""Small increment: the changes of an increment in this process, read by Arrow, if they are few."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.increment.arrow_rows import table_batches
from jobs.mirror.change_frame import AT, LINEAGE, OFFSET, PARTITION, POSITION, TOPIC
from jobs.mirror.fold import OP_COLUMN, UNAVAILABLE_COLUMN
from jobs.mirror.merge_plan import MergePlan

MOST_ROWS = 100_000
MOST_BYTES = 32 * 1024**2
"""Of the values: a merge has several copies of them at once."""
_ROWS_AT_ONCE = 1_024
"""A large text that many rows have is once in a file, and as often in a batch as there are rows."""
_BYTES_AT_ONCE = 8 * 1024**2
_OPTIONAL: dict[str, pa.DataType] = {
    POSITION: pa.string(),
    LINEAGE: pa.string(),
    AT: pa.timestamp("us", "UTC"),
    UNAVAILABLE_COLUMN: pa.list_(pa.string()),
}


def small_increment(changelog: Table, files: Sequence[DataFile], plan: MergePlan) -> pa.Table | None:
    """The changes in data files, in the columns that ordering and folding go by; None if they are many.

    Args:
        changelog: With the schema by which its rows are read.
        files: At least one.

    Raises:
        UnreadableFileError: A file is no Parquet file with field ids, or it cannot be read.
    """
    rows, size = sum(file.record_count for file in files), sum(file.file_size_in_bytes for file in files)
    if rows > MOST_ROWS or size > MOST_BYTES:
        return None
    places = dict(zip((TOPIC, PARTITION, OFFSET), plan.coordinates, strict=True))
    names = {name: name for name in (*plan.columns, OP_COLUMN, *_OPTIONAL)} | places
    schema = changelog.schema()
    wanted = {*names.values()} & {field.name for field in schema.fields}
    batches, size = list[pa.RecordBatch](), 0
    for file in files:
        for batch in table_batches(changelog.io, file, schema, wanted, rows=_ROWS_AT_ONCE, batch_bytes=_BYTES_AT_ONCE):
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
            batches.append(batch)
    found = pa.Table.from_batches(batches)
    columns = {
        name: found[given] if given in wanted else pa.nulls(found.num_rows, _OPTIONAL[name])
        for name, given in names.items()
    }
    return pa.table(columns)
