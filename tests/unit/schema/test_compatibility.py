from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
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
)

from jobs.schema.compatibility import still_fits

ID = NestedField(1, "id", StringType(), required=True)


def of(*fields: NestedField) -> Schema:
    return Schema(ID, *fields)


def field(kind: IcebergType, *, required: bool = False, name: str = "x") -> NestedField:
    return NestedField(2, name, kind, required=required)


def listed(element: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(2, "xs", ListType(3, element, element_required=required))


def nested(*fields: NestedField) -> NestedField:
    return NestedField(2, "s", StructType(*fields))


A = NestedField(4, "a", IntegerType())
FITS = {
    "unchanged": (of(field(StringType())), of(field(StringType()))),
    "renamed": (of(field(StringType())), of(field(StringType(), name="y"))),
    "optional column added": (of(), of(field(StringType()))),
    "int to long": (of(field(IntegerType())), of(field(LongType()))),
    "float to double": (of(field(FloatType())), of(field(DoubleType()))),
    "wider decimal": (of(field(DecimalType(9, 2))), of(field(DecimalType(18, 2)))),
    "made optional": (of(field(StringType(), required=True)), of(field(StringType()))),
    "element to long": (of(listed(IntegerType())), of(listed(LongType()))),
    "nested optional added": (of(nested(A)), of(nested(A, NestedField(5, "b", StringType())))),
}
DOES_NOT = {
    "column dropped": (of(field(StringType())), of()),
    "dropped and added again": (of(field(StringType())), of(NestedField(3, "x", StringType()))),
    "required column added": (of(), of(field(StringType(), required=True))),
    "made required": (of(field(StringType())), of(field(StringType(), required=True))),
    "narrower decimal": (of(field(DecimalType(18, 2))), of(field(DecimalType(9, 2)))),
    "another scale": (of(field(DecimalType(9, 2))), of(field(DecimalType(9, 3)))),
    "long to int": (of(field(LongType())), of(field(IntegerType()))),
    "another kind": (of(field(StringType())), of(listed(StringType()))),
    "element made required": (of(listed(StringType())), of(listed(StringType(), required=True))),
    "nested dropped": (of(nested(A, NestedField(5, "b", StringType()))), of(nested(A))),
}


@pytest.mark.parametrize("change", FITS)
def test_files_still_fit(change: str) -> None:
    assert still_fits(*FITS[change])


@pytest.mark.parametrize("change", DOES_NOT)
def test_files_no_longer_fit(change: str) -> None:
    assert not still_fits(*DOES_NOT[change])
