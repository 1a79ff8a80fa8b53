"""Row types: the types of a mirror, and the way back to those of its changes."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from jobs.mirror.row_types import arranged_as


def struct(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # pyright: ignore[reportArgumentType]


def test_a_mirrors_type_is_arranged_as_that_of_its_changes() -> None:
    changes = struct(a=IntegerType(), b=ArrayType(struct(x=IntegerType(), y=StringType())), c=StringType())
    mirror = struct(more=StringType(), b=ArrayType(struct(y=StringType(), x=LongType())), a=LongType())
    wide = struct(a=LongType(), b=ArrayType(struct(x=LongType(), y=StringType())), c=StringType())
    assert arranged_as(mirror, changes) == wide
    by_name = arranged_as(MapType(StringType(), mirror), MapType(StringType(), changes))
    assert by_name == MapType(StringType(), wide)
    assert arranged_as(LongType(), IntegerType()) == LongType()
