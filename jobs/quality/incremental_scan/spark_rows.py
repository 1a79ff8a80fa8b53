"""Rows of a selection as a Spark frame: through Iceberg's own reader, or by the same file reader as without Spark."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from jobs.base.errors import FrazilError
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.jvm_calls import jvm_error_text
from jobs.clients.spark.staged_files import StagedFiles, why_not_staged
from jobs.config.settings.settings import Settings
from jobs.quality.incremental_scan.arrow_rows import file_batches, shown_schema
from jobs.quality.incremental_scan.offset_ranges import quoted_name, ranges_sql
from jobs.quality.incremental_scan.row_selection import RowSelection
from jobs.records.schema.iceberg_schema import unread_problem
from jobs.tables.write.file_access import store_properties
from jobs.tables.write.renewed_file_io import RenewedFileIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

# Most ranges that Spark SQL parses in one condition without delay.
_MOST_SPANS = 500
# Least number of files in a task, if there are more than cores.
_FILES_PER_TASK = 8


def rows_to_read_again(
    selection: RowSelection,
    columns: Collection[str],
    session: SparkSession,
    settings: Settings,
    until: contextlib.ExitStack,
) -> DataFrame:
    """Rows of a selection for several jobs, each of which reads them at full speed.

    Iceberg's own reader reads the files if it returns the same rows. Rows that come through Python are cached in Spark.

    Args:
        columns: Top-level columns of the table; others are left out.
        session: Spark session; the catalog is added to it.
        until: Releases what is cached for the rows in the JVM when it is closed; then they cannot be read any more.

    Raises:
        FrazilError: Spark cannot read a table with such columns.
    """
    if selection.files and (staged := _staged(selection, session, settings)) is not None:
        until.callback(staged.close)
        return _joined(_of_staged(selection, staged.frame, columns), selection, columns, session, settings)
    frame = spark_frame(selection, columns, session, settings)
    if selection.files:
        frame.persist()
        until.callback(frame.unpersist)
    return frame


def spark_frame(
    selection: RowSelection, columns: Collection[str], session: SparkSession, settings: Settings
) -> DataFrame:
    """Rows of a selection, read at each use; those of its files through Python.

    Args:
        columns: Top-level columns of the table; others are left out.
        session: Spark session; the catalog is added to it.

    Raises:
        FrazilError: Spark cannot read a table with such columns.
    """
    files = None
    if selection.files or selection.snapshot_id is None:
        files = _of_files(selection, shown_schema(selection.table.schema(), columns), session)
    return _joined(files, selection, columns, session, settings)


def _joined(
    files: DataFrame | None,
    selection: RowSelection,
    columns: Collection[str],
    session: SparkSession,
    settings: Settings,
) -> DataFrame:
    """Rows of the files, and those of the scan."""
    if selection.snapshot_id is None and files is not None:
        return files
    scanned = _of_scan(selection, shown_schema(selection.table.schema(), columns), session, settings)
    return scanned if files is None else files.unionByName(scanned)


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _of_files(selection: RowSelection, wanted: pa.Schema, session: SparkSession) -> DataFrame:
    paths = [(each.file_path, each.file_format.value) for each in selection.files]
    if not paths:
        return session.createDataFrame([], _spark_schema(wanted))
    cores = session.sparkContext.defaultParallelism
    tasks = max(min(cores, len(paths)), len(paths) // _FILES_PER_TASK)
    table = selection.table
    if isinstance(table.io, RenewedFileIO):
        table.io.renew()
    properties, location, schema = store_properties(table.io.properties), table.location(), table.schema()
    columns, outside, coordinates = [*wanted.names], selection.outside, selection.coordinates

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = load_file_io(properties, location)
        for batch in batches:
            for path, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                files = [_file(path, kind)]
                yield from file_batches(io, files, schema, columns, outside=outside, coordinates=coordinates)

    listed = session.createDataFrame(paths, "path string, format string").repartition(tasks)
    return listed.mapInArrow(read, _spark_schema(wanted))


def _staged(selection: RowSelection, session: SparkSession, settings: Settings) -> StagedFiles | None:
    """Files for Iceberg's own reader; None if it could not read them, or would return other rows."""
    table, spans = selection.table, sum(map(len, (selection.outside or {}).values()))
    why = unread_problem(table.schema()) or why_not_staged(table.metadata, selection.files)
    if spans > _MOST_SPANS:
        why = f"{spans} ranges of offsets are left out of them"
    if why is None:
        path = ".".join(quoted_name(part) for part in (settings.catalog.name, *table.name()))
        try:
            use_catalog(session, settings)
            return StagedFiles(session, path, selection.files, table.metadata)
        except Exception as problem:
            why = jvm_error_text(settings, problem)
    log.info("table %s: its files are read through Python: %s", selection.name, why)
    return None


def _of_staged(selection: RowSelection, frame: DataFrame, columns: Collection[str]) -> DataFrame:
    from pyspark.sql import functions as sql

    if selection.outside and selection.coordinates:
        # A row without coordinates is in no range.
        frame = frame.where(f"NOT coalesce({ranges_sql(selection.coordinates, selection.outside)}, false)")
    wanted = shown_schema(selection.table.schema(), columns)
    return frame.select(*[sql.col(quoted_name(name)) for name in wanted.names])


def _file(path: str, kind: str) -> DataFile:
    # Its reader uses only location and format.
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat(kind), partition=Record()
    )


def _of_scan(selection: RowSelection, wanted: pa.Schema, session: SparkSession, settings: Settings) -> DataFrame:
    if problem := unread_problem(selection.table.schema()):
        raise FrazilError(
            f"table {selection.name} has more rows than are read without Spark. {problem}.",
            fix="check a part of it: --where",
        )
    from pyspark.sql import functions as sql

    use_catalog(session, settings)
    path = ".".join(quoted_name(part) for part in (settings.catalog.name, *selection.table.name()))
    frame = session.sql(f"SELECT * FROM {path} VERSION AS OF {selection.snapshot_id} WHERE {selection.sql}")
    # A snapshot is read by its own schema, and lacks later columns.
    there = {*frame.columns}
    shown = [
        sql.col(quoted_name(each.name)) if each.name in there else sql.lit(None).cast(each.dataType).alias(each.name)
        for each in _spark_schema(wanted).fields
    ]
    return frame.select(*shown)
