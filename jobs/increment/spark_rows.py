"""Rows of a selection as a data frame of Spark: files by the same reader as without Spark, a scan by Iceberg's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from jobs.errors import FrazilError
from jobs.increment.arrow_rows import file_batches, shown_schema
from jobs.increment.offset_ranges import quoted_name
from jobs.increment.row_selection import RowSelection
from jobs.schema.spark_types import unread_problem
from jobs.spark.catalog_conf import use_catalog
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# A task opens so many files at least, where there are more than cores.
_FILES_PER_TASK = 8


def spark_frame(
    selection: RowSelection, columns: Collection[str], session: SparkSession, settings: Settings
) -> DataFrame:
    """The rows of a selection, read as often as they are asked for.

    Args:
        columns: At the top of the table; others are left out.
        session: Gets to know the catalog.

    Raises:
        FrazilError: Spark reads no table with such columns.
    """
    wanted = shown_schema(selection.table.schema(), columns)
    frames = []
    if selection.files or selection.snapshot_id is None:
        frames.append(_of_files(selection, wanted, session))
    if selection.snapshot_id is not None:
        frames.append(_of_scan(selection, wanted, session, settings))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


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
    properties, location, schema = dict(table.io.properties), table.location(), table.schema()
    columns, outside, coordinates = [*wanted.names], selection.outside, selection.coordinates

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        io = load_file_io(properties, location)
        for batch in batches:
            for path, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                files = [_file(path, kind)]
                yield from file_batches(io, files, schema, columns, outside=outside, coordinates=coordinates)

    listed = session.createDataFrame(paths, "path string, format string").repartition(tasks)
    return listed.mapInArrow(read, _spark_schema(wanted))


def _file(path: str, kind: str) -> DataFile:
    # What reads it asks for the place and the format alone.
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
    # A snapshot is read by the schema that it was written with, and lacks what came since.
    there = {*frame.columns}
    shown = [
        sql.col(quoted_name(each.name)) if each.name in there else sql.lit(None).cast(each.dataType).alias(each.name)
        for each in _spark_schema(wanted).fields
    ]
    return frame.select(*shown)
