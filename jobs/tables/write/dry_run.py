"""Dry run of a write: checks whether data files can be written with a table's properties; the table is not touched."""

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
    """`check_writable` for a table that is to be created with a spec's properties."""
    refuse_names(name, schema, spec)
    wanted = create_table_properties(properties)
    check_writable(name, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, _NOWHERE, wanted), "table.properties")


def check_writable(name: str, metadata: TableMetadata, place: str = "the table's properties") -> None:
    """Check whether a task could write the table's files; nothing is written to the table's location.

    Raises:
        FrazilError: No rows could be written: because of the format version, a codec, a size, or a metrics mode.
    """
    refuse_format(metadata, name)
    try:
        TargetWriter(metadata, load_file_io({}, _NOWHERE), file_prefix="trial")
        # A codec is loaded only when there is something to compress.
        pq.write_table(pa.table({"n": [1]}), pa.BufferOutputStream(), **parquet_options(metadata.properties))
    except (pa.ArrowException, ValueError, OSError) as problem:
        raise FrazilError(
            f"table {name}: no file can be written with its properties: {first_line(problem)}",
            fix=f"correct write.* in {place}",
        ) from problem
