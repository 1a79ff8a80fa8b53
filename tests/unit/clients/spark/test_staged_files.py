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
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from jobs.clients.spark.staged_files import why_not_staged

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
        ([Schema(ID), Schema(ID, NAME)], [file()], "required, came later"),
        ([Schema(ID, nested(False)), Schema(ID, nested(False))], [file()], None),
        ([Schema(ID), Schema(ID, nested(True))], [file()], "required, came later"),
        # One that was required from the beginning, and renamed.
        ([Schema(ID, NAME), Schema(ID, NestedField(2, "called", StringType(), required=True))], [file()], None),
    ],
)
def test_why_files_are_not_read_by_icebergs_own_reader(
    schemas: list[Schema], files: list[DataFile], why: str | None
) -> None:
    told = why_not_staged(table(*schemas), files)
    assert told is None if why is None else told is not None and why in told


@pytest.mark.parametrize("name", ["schema.name-mapping.default", "encryption.key-id"])
def test_a_property_of_the_table_may_say_that_its_files_are_others(name: str) -> None:
    made = table(Schema(ID, NAME)).model_copy(update={"properties": {name: "x"}})
    assert why_not_staged(made, [file()]) is not None


def of(kind: IcebergType, *, required: bool = False) -> Schema:
    return Schema(ID, NestedField(2, "c", kind, required=required))


def struct(*fields: int) -> StructType:
    return StructType(*(NestedField(number, f"f{number}", IntegerType(), required=False) for number in fields))


@pytest.mark.parametrize(
    ("former", "now", "why"),
    [
        (IntegerType(), LongType(), None),
        (FloatType(), DoubleType(), None),
        (DecimalType(9, 2), DecimalType(20, 2), None),
        (struct(5, 6), struct(6, 7), None),
        (LongType(), IntegerType(), "c, was of type long before"),
        (DecimalType(9, 2), DecimalType(9, 3), "c, was of type decimal(9, 2) before"),
        (DecimalType(9, 2), DecimalType(8, 2), "c, was of type decimal(9, 2) before"),
        (DateType(), TimestampType(), "c, was of type date before"),
        (StringType(), struct(5), "c, was of type string before"),
        (struct(5), struct(6), "c, a struct, has no field that it had before"),
        (ListType(9, struct(5), False), ListType(9, struct(6), False), "c.element, a struct, has no field"),
    ],
)
def test_a_former_type_is_read_alike_or_not_at_all(former: IcebergType, now: IcebergType, why: str | None) -> None:
    told = why_not_staged(table(of(former), of(now)), [file()])
    assert told is None if why is None else told is not None and why in told


def test_what_was_optional_may_be_null_in_a_file() -> None:
    optional, required = of(StringType()), of(StringType(), required=True)
    assert why_not_staged(table(optional, required), [file()]) == "c, a column that is required, was optional before"
    assert why_not_staged(table(required, optional), [file()]) is None
