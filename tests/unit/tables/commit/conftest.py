from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
NAME = "orders.payments"


@pytest.fixture
def new_catalog(tmp_path: Path) -> Callable[[], SqlCatalog]:
    """Connects to one SQLite catalog, as another process would."""

    def connect() -> SqlCatalog:
        return SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")

    return connect


@pytest.fixture
def catalog(new_catalog: Callable[[], SqlCatalog]) -> SqlCatalog:
    made = new_catalog()
    made.create_namespace("orders")
    made.create_table(NAME, SCHEMA, properties={"format-version": "2"})
    return made


def data_file(table: Table, rows: int = 3) -> DataFile:
    """A data file of the table's present schema and spec, committed by nobody."""
    frame = pa.table(
        {
            column.name: pa.array(["a"] * rows if isinstance(column.field_type, StringType) else range(rows))
            for column in table.schema().fields
        },
        schema=table.schema().as_arrow(),
    )
    (made,) = _dataframe_to_data_files(table.metadata, frame, table.io, uuid.uuid4())
    return made


def files_of(table: Table, pattern: str) -> set[str]:
    """Paths of the files under the table's location that match."""
    return {str(path) for path in Path(table.location().removeprefix("file://")).rglob(pattern)}


def rows_of(table: Table) -> int:
    return sum(
        pq.read_metadata(task.file.file_path.removeprefix("file://")).num_rows for task in table.scan().plan_files()
    )
