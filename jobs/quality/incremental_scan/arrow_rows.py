"""Arrow rows of a selection, in batches, with the columns and types of the present table."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import NestedField, TimeType, UUIDType

from jobs.base.errors import FrazilError
from jobs.quality.incremental_scan.offset_ranges import RangesByPartition
from jobs.quality.incremental_scan.row_selection import RowSelection
from jobs.tables.write.data_file_rows import BLOCK_ROWS, stored_rows
from jobs.tables.write.projection import projected
from jobs.tables.write.pyiceberg_files import arrow_schema_in_files

MOST_ROWS = 2_000_000
MOST_BYTES = 256 * 1024 * 1024
"""Most bytes for pandas; Spark takes larger amounts."""


class TooManyRowsError(FrazilError):
    """A contract has more rows to check than fit in memory.

    Safe: Nothing was changed.
    Next: `frazil check S --engine spark`
    """


def small_table(
    selection: RowSelection,
    columns: Collection[str],
    *,
    most_rows: int = MOST_ROWS,
    most_bytes: int = MOST_BYTES,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> pa.Table:
    """Rows of a selection in one Arrow table.

    Args:
        columns: Top-level columns of the table; others are left out.
        most_rows, most_bytes: Limits at which reading ends.
        on_rows: Called with the number of rows read, as reading goes on.

    Raises:
        TooManyRowsError: The limits are exceeded.
        FileNotFoundError: A file is missing, such as after an expiry of snapshots.
    """
    batches, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in arrow_batches(selection, columns):
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > most_rows or size > most_bytes:
            raise TooManyRowsError(
                f"the rows of table {selection.name} are more than {most_rows:,}, or take more than "
                f"{most_bytes // 1024**2:,} MB of memory"
            )
        batches.append(batch)
        on_rows(batch.num_rows)
    return pa.Table.from_batches(batches, shown_schema(selection.table.schema(), columns))


def arrow_batches(selection: RowSelection, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a selection, in the table's order of columns; times of the day and uuids as text.

    Raises:
        FrazilError: The table has equality deletes, or files of another format than Parquet.
        FileNotFoundError: A file is missing.
    """
    table, schema = selection.table, selection.table.schema()
    for batch in file_batches(
        table.io, selection.files, schema, columns, outside=selection.outside, coordinates=selection.coordinates
    ):
        yield batch
    if selection.snapshot_id is None:
        return
    bound = bind(schema, selection.condition, case_sensitive=True)
    everything = isinstance(selection.condition, AlwaysTrue)
    needed = {*columns} if everything else {*columns, *_names_in(bound, schema)}
    for task in table.scan(selection.condition, snapshot_id=selection.snapshot_id).plan_files():
        for batch in _task_batches(selection, task, schema, needed):
            kept = batch if everything else _filtered(batch, expression_to_pyarrow(bound))
            if kept.num_rows:
                yield _shown(kept.select([each.name for each in _wanted(schema, columns)]), schema)


def file_batches(
    io: FileIO,
    files: Sequence[DataFile],
    schema: Schema,
    columns: Collection[str],
    *,
    outside: RangesByPartition | None = None,
    coordinates: tuple[str, str, str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of data files as they landed.

    Args:
        outside: Rows of records in these ranges are left out, by the columns `coordinates`.
    """
    wanted = [each.name for each in _wanted(schema, columns)]
    needed = {*wanted, *(coordinates if outside and coordinates else ())}
    for file in files:
        for batch in table_batches(io, file, schema, needed):
            if outside and coordinates:
                batch = batch.filter(pc.invert(_within(batch, coordinates, outside)))
            if batch.num_rows:
                yield _shown(batch.select(wanted), schema)


def shown_schema(schema: Schema, columns: Collection[str]) -> pa.Schema:
    """Schema of the batches."""
    wanted = _wanted(schema, columns)
    kinds = arrow_schema_in_files(Schema(*wanted))
    return pa.schema([pa.field(each.name, _shown_type(each, kinds.field(each.name).type)) for each in wanted])


def _shown_type(field: NestedField, kind: pa.DataType) -> pa.DataType:
    if _as_text(field):
        return pa.string()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def _wanted(schema: Schema, columns: Collection[str]) -> list[NestedField]:
    return [field for field in schema.fields if field.name in columns]


def _as_text(field: NestedField) -> bool:
    return isinstance(field.field_type, (TimeType, UUIDType))


def table_batches(
    io: FileIO,
    file: DataFile,
    schema: Schema,
    columns: Collection[str],
    *,
    rows: int = BLOCK_ROWS,
    groups: Callable[[Sequence[int]], Sequence[int]] | None = None,
    batch_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows of a data file, deleted ones included, in its order and the table's types; later columns are null.

    Args:
        columns: Top-level columns, at least one.
        rows: Most rows in a batch.
        groups: Chooses row groups, by the number of rows of each.
        batch_bytes: Approximate size of a batch.

    Raises:
        UnreadableFileError: The file is not Parquet with field ids, or cannot be read.
    """
    fields = _wanted(schema, columns)
    target = arrow_schema_in_files(Schema(*fields))
    for batch in stored_rows(io, file, schema, columns, rows=rows, groups=groups, batch_bytes=batch_bytes):
        yield _conformed(batch, fields, target)


def _conformed(batch: pa.RecordBatch, fields: Sequence[NestedField], target: pa.Schema) -> pa.RecordBatch:
    there = {*batch.schema.names}
    arrays = []
    for field in fields:
        wanted = target.field(field.name).with_nullable(True)
        values = batch.column(field.name) if field.name in there else None
        arrays.append(projected(values, field.field_type, wanted, field.name, batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([each.with_nullable(True) for each in target]))


def _task_batches(
    selection: RowSelection, task: FileScanTask, schema: Schema, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    table = selection.table
    if not task.delete_files:
        yield from table_batches(table.io, task.file, schema, columns)
        return
    # Only PyIceberg applies deletes of rows.
    fields = _wanted(schema, columns)
    scan = ArrowScan(table.metadata, table.io, Schema(*fields), AlwaysTrue())
    target = arrow_schema_in_files(Schema(*fields))
    for batch in scan.to_record_batches([task]):
        yield _conformed(_ordinary(batch), fields, target)


def _ordinary(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain values in place of PyIceberg's dictionaries."""
    arrays = [each.dictionary_decode() if isinstance(each, pa.DictionaryArray) else each for each in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _filtered(batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
    tables = pa.Table.from_batches([batch]).filter(condition).combine_chunks().to_batches()
    return tables[0] if tables else batch.slice(0, 0)


def _names_in(bound: BooleanExpression, schema: Schema) -> list[str]:
    return [name for each in extract_field_ids(bound) if (name := schema.find_column_name(each))]


def _within(batch: pa.RecordBatch, coordinates: tuple[str, str, str], ranges: RangesByPartition) -> pa.Array:
    topics, partitions, offsets = (batch.column(name) for name in coordinates)
    inside = pa.repeat(pa.scalar(False), batch.num_rows)
    for source, spans in ranges.items():
        here = pc.and_(pc.equal(topics, source.topic), pc.equal(partitions, source.partition))
        for start, end in spans:
            mine = pc.and_(here, pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
            inside = pc.or_(inside, pc.fill_null(mine, False))
    return inside


def _shown(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    fields = {field.name: field for field in schema.fields}
    arrays = []
    for name, each in zip(batch.schema.names, batch.columns, strict=True):
        if _as_text(fields[name]):
            each = _text(each)
        elif pa.types.is_fixed_size_binary(each.type):
            each = each.cast(pa.binary())
        arrays.append(each)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _text(values: pa.Array) -> pa.Array:
    if pa.types.is_time(values.type):
        return values.cast(pa.string())
    octets = values.storage if isinstance(values, pa.ExtensionArray) else values
    return pa.array(
        [str(uuid.UUID(bytes=each)) if each is not None else None for each in octets.to_pylist()], pa.string()
    )
