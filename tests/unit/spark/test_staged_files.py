"""Which files are read by Iceberg's own reader, which would not read others or give other rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, NestedField, StringType, StructType

from jobs.spark.staged_files import why_not_staged

ID = NestedField(1, "id", IntegerType(), required=False)
NAME = NestedField(2, "name", StringType(), required=True)


def table(*schemas: Schema) -> TableMetadata:
    made = new_table_metadata(schemas[0], UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "mem://table")
    numbered = [each.model_copy(update={"schema_id": at}) for at, each in enumerate(schemas)]
    return made.model_copy(update={"schemas": numbered, "current_schema_id": len(schemas) - 1})


def file(**fields: Any) -> DataFile:
    known = {"file_path": "mem://a", "file_format": FileFormat.PARQUET, "partition": Record(), **fields}
    return DataFile.from_args(content=DataFileContent.DATA, **known)


def nested(required: bool) -> NestedField:
    inner = NestedField(4, "inner", IntegerType(), required=required)
    return NestedField(3, "outer", StructType(inner), required=False)


@pytest.mark.parametrize(
    ("schemas", "files", "why"),
    [
        ([Schema(ID, NAME)], [file()], None),
        ([Schema(ID)], [file(), file(file_format=FileFormat.ORC)], "no Parquet"),
        ([Schema(ID)], [file(), file(key_metadata=b"key")], "encrypted"),
        ([Schema(ID, NestedField(2, "ID", StringType(), required=False))], [file()], "upper and lower case"),
        ([Schema(NestedField(1, "id", IntegerType(), required=False, initial_default=7))], [file()], "default"),
        # Columns that came later are null before, which a required one cannot be.
        ([Schema(ID), Schema(ID, NestedField(2, "name", StringType(), required=False))], [file()], None),
        ([Schema(ID), Schema(ID, NAME)], [file()], "required came later"),
        ([Schema(ID, nested(False)), Schema(ID, nested(False))], [file()], None),
        ([Schema(ID), Schema(ID, nested(True))], [file()], "required came later"),
        # One that was required from the beginning, and renamed.
        ([Schema(ID, NAME), Schema(ID, NestedField(2, "called", StringType(), required=True))], [file()], None),
    ],
)
def test_why_files_are_not_read_by_icebergs_own_reader(
    schemas: list[Schema], files: list[DataFile], why: str | None
) -> None:
    told = why_not_staged(table(*schemas), files)
    assert told is None if why is None else told is not None and why in told
