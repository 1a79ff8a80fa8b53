"""Dry run of writing: whether data files can be written as a table's properties ask for; nothing reaches the table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.base.errors import FrazilError, first_line
from jobs.tables.write.pyiceberg_files import parquet_options
from jobs.tables.write.table_creation import create_table_properties, refuse_format, refuse_names
from jobs.tables.write.target_writer import TargetWriter

_NOWHERE = "file:///nowhere"


def check_new_table_writable(name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> None:
    """As `check_writable`, for a table that is to be created with a spec's properties."""
    refuse_names(name, schema, spec)
    wanted = create_table_properties(properties)
    check_writable(name, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, _NOWHERE, wanted), "table.properties")


def check_writable(name: str, metadata: TableMetadata, place: str = "the table's properties") -> None:
    """See whether a task could write the table's files; nothing is written to the table's location.

    Raises:
        FrazilError: It could not, whatever the rows are: the format version, a codec, a size, a metrics mode.
    """
    refuse_format(metadata, name)
    try:
        TargetWriter(metadata, load_file_io({}, _NOWHERE), file_prefix="trial")
        # A codec is first looked for when there is something to compress.
        pq.write_table(pa.table({"n": [1]}), pa.BufferOutputStream(), **parquet_options(metadata.properties))
    except (pa.ArrowException, ValueError, OSError) as problem:
        raise FrazilError(
            f"table {name}: no file can be written with its properties: {first_line(problem)}",
            fix=f"correct write.* in {place}",
        ) from problem
