from __future__ import annotations

import itertools

import pytest
from pyiceberg import types as ice
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

from jobs.records.schema.compatibility import (
    disagreements,
    holds,
    promotes,
    still_fits,
)
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS, NO_KAFKA_COLUMNS, KafkaColumns
from jobs.records.schema.parser import parse_schema

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


EVERYTHING = (
    "b boolean, i int not null, l long, f float, d double, m decimal(12,2), day date, t timestamp, z timestamptz,"
    " s string, x binary, o struct<a int not null, n list<long not null>>, k map<string, struct<q date> not null>"
)


def kafka(on: bool) -> KafkaColumns:
    return KAFKA_COLUMNS if on else NO_KAFKA_COLUMNS


def table(text: str, *, kafka_columns: bool = False) -> Schema:
    rows = iceberg_schema(parse_schema(text))
    return kafka(kafka_columns).added_to(rows)


def found(declared: str, schema: Schema, *, kafka_columns: bool = False) -> list[str]:
    return disagreements(table(declared), schema, kafka(kafka_columns))


@pytest.mark.parametrize("kafka_columns", [True, False])
def test_a_record_fits_the_table_made_for_it(kafka_columns: bool) -> None:
    assert found(EVERYTHING, table(EVERYTHING, kafka_columns=kafka_columns), kafka_columns=kafka_columns) == []


@pytest.mark.parametrize(
    ("declared", "existing"),
    [
        ("v int", "v long"),
        ("v float", "v double"),
        ("v decimal(10,2)", "v decimal(12,2)"),
        ("v decimal(10,2)", "v decimal(12,4)"),
        ("v int not null", "v int"),
        ("v int", "other string, v int"),
        ("v list<int not null>", "v list<long>"),
        ("v timestamptz as epoch_ms", "v timestamptz"),
        ("v struct<a int>", "v struct<b int, a long>"),
    ],
)
def test_a_table_may_be_wider(declared: str, existing: str) -> None:
    assert found(declared, table(existing)) == []


@pytest.mark.parametrize(
    ("declared", "existing", "sentence"),
    [
        ("v int", "w int", "Column v is declared, but the table has no such column."),
        ("v int", "V int", "Column v is declared, but the table calls it V: names differ by case."),
        ("v long", "v int", "Column v is declared as long, but it is int in the table."),
        ("v double", "v float", "Column v is declared as double, but it is float in the table."),
        ("v int", "v double", "Column v is declared as int, but it is double in the table."),
        ("v decimal(10,2)", "v decimal(10,4)", "Column v is declared as decimal(10,2), but it is decimal(10,4)"),
        ("v decimal(10,2)", "v decimal(12,1)", "Column v is declared as decimal(10,2), but it is decimal(12,1)"),
        ("v timestamp", "v timestamptz", "Column v is declared as timestamp, but it is timestamptz in the table."),
        ("v string", "v struct<a int>", "Column v is declared as string, but it is struct<"),
        ("v list<int>", "v int", "Column v is declared as list<int>, but it is int in the table."),
        ("v int", "v int not null", "Column v is required in the table, but declared without 'not null'."),
        ("v int", "v int, w int not null", "Column w is required by the table, but it is not declared."),
        ("v struct<a int>", "v struct<a int, b int not null>", "Column v.b is required by the table"),
        ("v list<struct<a long>>", "v list<struct<a int>>", "Column v.element.a is declared as long"),
        ("v list<int>", "v list<int not null>", "Column v.element is required in the table"),
        ("v map<string, long>", "v map<string, int>", "Column v.value is declared as long"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(declared: str, existing: str, sentence: str) -> None:
    (reason,) = found(declared, table(existing))
    assert reason.startswith(sentence)


def test_kafka_columns_must_be_there_and_hold_their_values() -> None:
    missing = found("v int", table("v int"), kafka_columns=True)
    named = ", ".join(column.name for column in KAFKA_COLUMNS.columns)
    assert missing == [f"The table lacks columns that name a row's record: {named}."]
    columns = [ice.NestedField(1, "v", ice.IntegerType())]
    columns += [ice.NestedField(2 + n, name, ice.StringType()) for n, (_, name) in enumerate(KAFKA_COLUMNS.columns)]
    wrong = found("v int", Schema(*columns), kafka_columns=True)
    assert wrong[0] == "Column _kafka_partition is string in the table, where int is needed." and len(wrong) == 3


def test_required_kafka_columns_are_filled_only_if_they_are_on() -> None:
    columns = [ice.NestedField(1, "v", ice.IntegerType())]
    columns += [ice.NestedField(2 + n, e.name, e.type, required=True) for n, e in enumerate(KAFKA_COLUMNS.columns)]
    assert found("v int", Schema(*columns), kafka_columns=True) == []
    assert len(found("v int", Schema(*columns))) == 4


def test_every_reason_is_given() -> None:
    assert len(found("a int, b long, c string", table("A int, b int, d int not null"))) == 4
