"""A row has a partition that manifests and readers hold as it is, or is refused: near every end of every type."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
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

from jobs.config.values.partitioning import PartitionExpr, partition_problems
from jobs.records.formats.columns.text_values import FIRST_MICROSECOND, LAST_MICROSECOND
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.records.schema.parser import parse_schema
from jobs.tables.write.column_statistics import ColumnStatistics
from jobs.tables.write.partition_limits import in_manifests, partition_limits
from jobs.tables.write.partitioning import partition_spec, split_by_partition
from jobs.tables.write.projection import UnfitValueError
from jobs.tables.write.pyiceberg_files import PartitionDirectory, new_data_file
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter
from tests.unit.tables.write.conftest import Append, MakeTable

MOST = 2**31 - 1
WIDTHS = (1, 2, 3, 10, 50, 1000, 2**30, MOST)


def near(*ends: int, within: tuple[int, int]) -> st.SearchStrategy[int]:
    """Numbers at both ends of a type, near others, and anywhere."""
    low, high = within
    places = st.sampled_from([low, high, *ends]).flatmap(lambda end: st.integers(end - 3000, end + 3000))
    return (places | st.integers(low, high)).filter(lambda n: low <= n <= high)


def decimals(precision: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    numbers = near(0, within=(-most, most))
    return numbers.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -2)))


DECIMALS = {f"decimal({p},2)": (DecimalType(p, 2), decimals(p)) for p in (2, 3, 4, 9, 10, 18, 19, 37, 38)}
MICROS = near(0, within=(FIRST_MICROSECOND, LAST_MICROSECOND))
KINDS: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), near(0, within=(-(2**31), 2**31 - 1))),
    "long": (LongType(), near(0, -(2**31), within=(-(2**63), 2**63 - 1))),
    **DECIMALS,
    "float": (FloatType(), st.floats(width=32, allow_nan=False)),
    "double": (DoubleType(), st.floats(allow_nan=False)),
    "boolean": (BooleanType(), st.booleans()),
    "string": (StringType(), st.text(max_size=5)),
    "binary": (BinaryType(), st.binary(max_size=5)),
    "date": (DateType(), near(0, -719_162, 2_932_896, within=(-719_162, 2_932_896))),
    "timestamp": (TimestampType(), MICROS),
    "timestamptz": (TimestamptzType(), MICROS),
    "time": (TimeType(), st.times()),
    "uuid": (UUIDType(), st.uuids().map(lambda each: each.bytes)),
    "fixed(2)": (FixedType(2), st.binary(min_size=2, max_size=2)),
}
EXPRESSIONS = (
    [PartitionExpr(name, "c") for name in ("identity", "year", "month", "day", "hour")]
    + [PartitionExpr("bucket", "c", number) for number in (1, 7, MOST)]
    + [PartitionExpr("truncate", "c", number) for number in WIDTHS]
)
CASES = [
    (name, expression)
    for name in KINDS
    for expression in EXPRESSIONS
    if not list(partition_problems([expression], iceberg_schema(parse_schema(f"c {name}")), NO_KAFKA_COLUMNS))
]


def rows_of(kind: PrimitiveType, values: list[Any], fit: TableFit) -> pa.RecordBatch:
    (field,) = fit.target
    stored = pa.int32() if isinstance(kind, DateType) else pa.int64() if pa.types.is_timestamp(field.type) else None
    array = pa.array(values, field.type) if stored is None else pa.array(values, stored).view(field.type)
    return pa.RecordBatch.from_arrays([array], names=["c"])


def fits(kind: PrimitiveType, value: Any, fit: TableFit) -> bool:
    try:
        fit.apply(rows_of(kind, [value], fit))
    except UnfitValueError as problem:
        return (problem.error_class, problem.path) != ("out_of_range", "c")
    return True


def exact(kind: PrimitiveType, expression: PartitionExpr, value: Any) -> tuple[int, int, int]:
    """What truncate makes of a number by the specification (downwards, also of negative ones), and the type's ends."""
    low, high = -(2**31), 2**31 - 1
    if isinstance(kind, LongType):
        low, high = -(2**63), 2**63 - 1
    if isinstance(kind, DecimalType):
        sign, digits, _ = value.as_tuple()
        value = int(Decimal((sign, digits, 0)))
        low, high = 1 - 10**kind.precision, 10**kind.precision - 1
    width = expression.argument or 0
    return value // width * width, low, high


def manifest_holds(path: Path, schema: Schema, spec: PartitionSpec, record: Record) -> None:
    file = new_data_file(path="f", size=1, partition=record, spec_id=0, statistics=ColumnStatistics(1))
    with write_manifest(2, spec, schema, PyArrowFileIO().new_output(str(path)), 1, "null") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=1, data_file=file))
    writer.to_manifest_file()


@pytest.mark.parametrize(("name", "expression"), CASES, ids=[f"{name}-{expression}" for name, expression in CASES])
@settings(max_examples=6)
@given(data=st.data())
def test_every_row_has_a_partition_or_is_refused(
    name: str, expression: PartitionExpr, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind, strategy = KINDS[name]
    schema = Schema(NestedField(1, "c", kind))
    spec = partition_spec([expression], schema)
    fit = TableFit(schema, spec)
    path = tmp_path_factory.getbasetemp() / "manifest.avro"
    for value in data.draw(st.lists(st.none() | strategy, min_size=1, max_size=6)):
        taken = fits(kind, value, fit)
        if value is not None and expression.transform == "truncate" and name not in ("string", "binary"):
            number, low, high = exact(kind, expression, value)
            assert taken == (low <= number <= high)
        else:
            assert taken
        if not taken:
            continue
        ((record, rows),) = split_by_partition(fit.apply(rows_of(kind, [value], fit)), spec, fit.file_schema)
        assert rows.num_rows == 1
        assert (record[0] is None) == (value is None), "a reader looks for the row by its partition"
        manifest_holds(path, schema, spec, record)
        assert in_manifests([record], spec, schema)
        PartitionDirectory(record, spec, schema).to_path()
        if value is not None and name.startswith("timestamp") and expression.transform == "hour":
            assert record[0] == value // 3_600_000_000
        if value is not None and expression.transform == "truncate" and name in ("int", "long"):
            assert record[0] == exact(kind, expression, value)[0]


def test_the_lowest_and_highest_that_fit() -> None:
    schema = Schema(NestedField(1, "who", StructType(NestedField(2, "amount", DecimalType(9, 2)))))
    spec = partition_spec([PartitionExpr("truncate", "who.amount", 50)], schema)
    (limit,) = partition_limits(spec, schema)
    fit = TableFit(schema, spec)

    def batch(*amounts: str | None) -> pa.RecordBatch:
        who = [None if amount is None else {"amount": Decimal(amount)} for amount in amounts]
        return pa.RecordBatch.from_arrays([pa.array(who, pa.struct([("amount", pa.decimal128(9, 2))]))], names=["who"])

    assert limit.column == "who.amount"
    assert fit.apply(batch(None, "-9999999.50", "9999999.99")).num_rows == 3
    with pytest.raises(UnfitValueError, match=r"`who.amount` needs at least -9999999.50, because truncate\[50\] of"):
        fit.apply(batch("1.00", "-9999999.51"))


def test_a_file_with_a_value_that_no_manifest_holds_is_known() -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "amount", DecimalType(4, 2)))
    spec = partition_spec([PartitionExpr("identity", "n"), PartitionExpr("truncate", "amount", 50)], schema)
    good, bad = Record(1, Decimal("-99.50")), Record(1, Decimal("-100.00"))
    assert in_manifests([good, Record(None, None)], spec, schema)
    assert not in_manifests([good, bad], spec, schema)


def test_readers_find_the_lowest_that_fits(make_table: MakeTable, append: Append) -> None:
    table = make_table(Schema(NestedField(1, "n", IntegerType())), "truncate(10, n)")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    lowest = -(2**31) + 8
    with pytest.raises(UnfitValueError):
        writer.write(pa.record_batch({"n": pa.array([lowest, lowest - 1], pa.int32())}))
    writer.write(pa.record_batch({"n": pa.array([lowest, 0], pa.int32())}))
    append(table, writer.close())
    for row_filter in (f"n < {lowest + 1}", f"n = {lowest}", f"n <= {lowest + 5}"):
        assert table.scan(row_filter=row_filter).to_arrow()["n"].to_pylist() == [lowest]
