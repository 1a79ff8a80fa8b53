from __future__ import annotations

import itertools

import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, promote
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.schema.compatibility import holds, promotes, still_fits

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


PRIMITIVES: list[PrimitiveType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimeType(), TimestampType()),
    *(TimestamptzType(), StringType(), BinaryType(), UUIDType(), FixedType(16), FixedType(3)),
    *(DecimalType(precision, scale) for precision in (1, 2, 9, 18, 38) for scale in (0, 1, 2, 9) if scale <= precision),
]
# Layouts that PyIceberg's reader lets stand for each other, which are no promotions of Iceberg's.
EXCHANGED = {("string", "binary"), ("binary", "string"), ("fixed[16]", "uuid")}


def promoted(written: PrimitiveType, column: PrimitiveType) -> bool:
    if written == column:
        return True
    if isinstance(written, DecimalType) and isinstance(column, DecimalType) and written.scale != column.scale:
        # Iceberg has none of these; PyIceberg 0.12 compares the one scale with itself.
        return False
    try:
        promote(written, column)
    except ResolveError:
        return False
    return (str(written), str(column)) not in EXCHANGED


def test_what_is_promoted_is_what_pyiceberg_promotes() -> None:
    for written, column in itertools.product(PRIMITIVES, PRIMITIVES):
        assert promotes(written, column) == promoted(written, column), (written, column)


def test_a_column_that_reads_what_was_written_holds_what_is_to_be_written() -> None:
    for written, column in itertools.product(PRIMITIVES, PRIMITIVES):
        other_scale = isinstance(written, DecimalType) and isinstance(column, DecimalType)
        if promotes(written, column):
            assert holds(written, column)
        elif holds(written, column):
            assert other_scale, (written, column)
