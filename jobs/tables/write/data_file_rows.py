"""Rows of one data file as they are stored, read by field ids and in batches.

PyIceberg's own reader turns null lists of structs into empty ones, so rewritten rows are not read by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from jobs.base.errors import FrazilError

BLOCK_ROWS = 16_384
_LEAST_ROWS = 64
_FIELD_ID = b"PARQUET:field_id"


class UnreadableFileError(FrazilError):
    """A data file is not Parquet with field ids, or cannot be read.

    Safe: Nothing was changed.
    Next: restore the file, or leave the table out of the action
    """


class EqualityDeletesError(FrazilError):
    """A table has equality deletes, such as an earlier sink's upserts, and PyIceberg does not apply them.

    Safe: Nothing was changed. Rows land all the same, and Spark reads the table.
    Next: apply the deletes with `frazil maintain`
    """


@contextlib.contextmanager
def equality_deletes_named(table: str) -> Iterator[None]:
    """Raise an error that names the table if a scan of PyIceberg meets equality deletes within the block.

    Args:
        table: The table's name.

    Raises:
        EqualityDeletesError: The table has some.
    """
    try:
        yield
    except (NotImplementedError, ValueError) as problem:
        if not is_of_equality_deletes(problem):
            raise
        raise EqualityDeletesError(
            f"table {table} has equality deletes, which another writer has made and only Spark applies.",
            fix=f"frazil maintain {table} --only compact, which applies them",
        ) from None


def is_of_equality_deletes(problem: BaseException) -> bool:
    """Whether an error is PyIceberg's message about equality deletes."""
    return isinstance(problem, NotImplementedError | ValueError) and "equality deletes" in str(problem)


def data_files(table: Table) -> list[FileScanTask]:
    """The data files of a table's head, with the delete files of each.

    Raises:
        EqualityDeletesError: The table has equality deletes, whose effect nothing here can apply.
    """
    with equality_deletes_named(".".join(table.name())):
        return list(table.scan().plan_files())


def stored_rows(
    io: FileIO,
    file: DataFile,
    schema: Schema,
    columns: Collection[str] | None = None,
    *,
    rows: int = BLOCK_ROWS,
    groups: Callable[[Sequence[int]], Sequence[int]] | None = None,
    batch_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of a data file, with those of the table's columns that it has, under their present names.

    Rows that delete files remove are included.

    Args:
        columns: Top-level columns of the table to read; None for all.
        rows: Most rows in a batch.
        groups: Chooses row groups, by the number of rows of each; None: all.
        batch_bytes: Approximate size of a batch, by the uncompressed size of the columns in the file.

    Raises:
        UnreadableFileError: The file is not Parquet with field ids, or is damaged.
    """
    if file.file_format is not FileFormat.PARQUET:
        raise UnreadableFileError(f"{file.file_path} is no Parquet file")
    try:
        with io.new_input(file.file_path).open() as stream:
            parquet = pq.ParquetFile(stream)  # type: ignore[arg-type]
            stored = _by_id(parquet.schema_arrow)
            if not stored:
                raise UnreadableFileError(f"{file.file_path} has no field ids")
            wanted = [
                (each, stored[each.field_id])
                for each in schema.fields
                if each.field_id in stored and (columns is None or each.name in columns)
            ]
            names = [field.name for _, field in wanted]
            counts = [parquet.metadata.row_group(n).num_rows for n in range(parquet.metadata.num_row_groups)]
            chosen = [*range(len(counts))] if groups is None else [*groups(counts)]
            size = rows if batch_bytes is None else _rows_of(batch_bytes, parquet.metadata, {*names}, rows)
            for batch in parquet.iter_batches(size, row_groups=chosen, columns=names):
                arrays = [_renamed(batch.column(field.name), field.type, each.field_type) for each, field in wanted]
                if names:
                    yield pa.RecordBatch.from_arrays(arrays, names=[each.name for each, _ in wanted])
                else:
                    yield batch
    except (pa.ArrowException, OSError) as problem:
        raise UnreadableFileError(f"{file.file_path} cannot be read: {type(problem).__name__}") from problem


def _rows_of(most_bytes: int, metadata: pq.FileMetaData, names: Collection[str], most: int) -> int:
    """Number of rows that take so many bytes in some columns."""
    size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(place) for place in range(group.num_columns))
        size += sum(each.total_uncompressed_size for each in columns if each.path_in_schema.split(".")[0] in names)
    return max(_LEAST_ROWS, min(most, most_bytes * max(1, metadata.num_rows) // max(1, size)))


def _by_id(fields: pa.Schema | pa.StructType) -> dict[int, pa.Field]:
    every = [
        fields.field(index) for index in range(len(fields) if isinstance(fields, pa.Schema) else fields.num_fields)
    ]
    return {int(each.metadata[_FIELD_ID]): each for each in every if each.metadata and _FIELD_ID in each.metadata}


def _renamed(values: pa.Array, stored: pa.DataType, kind: ice.IcebergType) -> pa.Array:
    """Values whose structs have the table's field names; fields that the table dropped are left out."""
    match kind:
        case ice.StructType():
            there = _by_id(stored)
            known = [(each, there[each.field_id]) for each in kind.fields if each.field_id in there]
            children = [
                _renamed(values.field(stored.get_field_index(field.name)), field.type, each.field_type)
                for each, field in known
            ]
            if not children:
                # Arrow cannot make a struct with a length but without a field. Fields that were added since are null.
                children, known = [pa.nulls(len(values))], [(kind.fields[0], None)]
            names = [each.name for each, _ in known]
            return pa.StructArray.from_arrays(children, names=names, mask=_nulls(values))
        case ice.ListType() if not kind.element_type.is_primitive:
            offsets, start, end = _offsets(values)
            inner = _renamed(values.values.slice(start, end - start), stored.value_type, kind.element_type)
            return pa.ListArray.from_arrays(offsets, inner, mask=_nulls(values))
        case ice.MapType() if not (kind.key_type.is_primitive and kind.value_type.is_primitive):
            offsets, start, end = _offsets(values)
            keys = _renamed(values.keys.slice(start, end - start), stored.key_type, kind.key_type)
            items = _renamed(values.items.slice(start, end - start), stored.item_type, kind.value_type)
            return pa.MapArray.from_arrays(offsets, keys, items, mask=_nulls(values))
        case _:
            return values


def _offsets(values: pa.Array) -> tuple[pa.Array, int, int]:
    offsets = values.offsets.to_numpy(zero_copy_only=False)
    start, end = int(offsets[0]), int(offsets[-1])
    return pa.array((offsets - start).astype(np.int32)), start, end


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
