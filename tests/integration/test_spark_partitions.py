"""Partitions of every type after merges of manifests: Spark finds each row by its value, as in tables of its own."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Table

from jobs.commit.operations import Append
from jobs.commit.pyiceberg_commit import commit_once
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.partitioning import parse_partition_expr
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from jobs.write.target_writer import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

LEAP_DAY = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)
FLOATS = [0.0, -0.0, 1.5, -2.25]
CASES: dict[str, tuple[list[str], list[Any]]] = {
    "boolean": (["c"], [True, False]),
    "int": (["c", "bucket(7, c)", "truncate(10, c)"], [0, -1, 2**31 - 1, 8 - 2**31]),
    "long": (["c", "bucket(7, c)", "truncate(10, c)"], [0, -1, 2**63 - 1, 8 - 2**63]),
    "float": (["c"], [*FLOATS, 3.4028234663852886e38, 1.401298464324817e-45]),
    "double": (["c"], [*FLOATS, 0.1, 1.7976931348623157e308, 5e-324, 16777217.0]),
    "decimal(9,2)": (["c", "bucket(7, c)", "truncate(50, c)"], [Decimal("0.10"), Decimal("-9999999.50")]),
    "decimal(38,2)": (["c", "bucket(7, c)", "truncate(50, c)"], [Decimal("9" * 36 + ".99"), Decimal("-0.01")]),
    "date": (["c", "bucket(7, c)", "month(c)"], [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "timestamp": (["c", "bucket(7, c)", "hour(c)"], [datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(1969, 1, 1)]),
    "timestamptz": (["c", "bucket(7, c)", "day(c)"], [LEAP_DAY, LEAP_DAY.replace(year=1968)]),
    "string": (["c", "bucket(7, c)", "truncate(2, c)"], ["", "é😀x", "a/b=c%"]),
    "binary": (["c", "bucket(7, c)", "truncate(2, c)"], [b"", b"\xff\x00\x80"]),
}  # fmt: skip
TWINS = ("float", "double")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[SqlCatalog]:
    """One for all: Spark keeps a catalog once it is used."""
    tmp_path = tmp_path_factory.mktemp("parts")
    made = SqlCatalog("parts", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    spark.conf.set("spark.sql.catalog.parts", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.parts.{key}", value)
    yield made
    made.close()


def made_of(catalog: SqlCatalog, name: str, kind: str, partition_by: list[str], values: list[Any]) -> Table:
    """A table with one row and one commit for each value, each of which merges the manifests."""
    schema = iceberg_schema(parse_schema(f"n int, c {kind}"))
    properties = create_table_properties({"commit.manifest.min-count-to-merge": "2"})
    spec = partition_spec([parse_partition_expr(text) for text in partition_by], schema)
    table = ensure_table(catalog, name, schema, spec, properties)
    kinds = schema.as_arrow()
    for number, value in enumerate(values):
        writer = TargetWriter(table.metadata, table.io, file_prefix="x")
        writer.write(pa.RecordBatch.from_pylist([{"n": number, "c": value}], schema=_small(kinds)))
        commit_once(table, Append(writer.close()), summary={}, properties={})
    return table


def _small(schema: pa.Schema) -> pa.Schema:
    kinds = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([pa.field(each.name, kinds.get(each.type, each.type)) for each in schema])


def plain(value: Any) -> Any:
    """A value that is equal only to itself: floats by their bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def literal(kind: str, value: Any) -> str:
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case bool() | int():
            return str(value).lower() if isinstance(value, bool) else f"CAST('{value}' AS {kind})"
        case _:
            names = {"timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
            text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
            return f"CAST('{text}' AS {names.get(kind, kind)})"


def found_by_value(spark: SparkSession, name: str, kind: str, values: list[Any]) -> dict[int, list[int]]:
    """For each value, the numbers of the rows that Spark finds by it."""
    conditions = ["c IS NULL" if value is None else f"c = {literal(kind, value)}" for value in values]
    query = " UNION ALL ".join(f"SELECT {i} AS q, n FROM {name} WHERE {each}" for i, each in enumerate(conditions))
    rows = [(row.q, row.n) for row in spark.sql(query).collect()]  # pyright: ignore[reportOptionalCall]
    return {i: sorted(n for q, n in rows if q == i) for i in range(len(values))}


def partitions(spark: SparkSession, name: str) -> list[str]:
    rows = spark.sql(f"SELECT partition FROM {name}.files").collect()  # pyright: ignore[reportOptionalCall]
    return sorted(repr([plain(value) for value in row.partition]) for row in rows)


@pytest.mark.parametrize("kind", CASES)
def test_rows_filters_and_partition_values_after_merges(catalog: SqlCatalog, spark: SparkSession, kind: str) -> None:
    partition_by, some = CASES[kind]
    values = [None, *some]
    name = re.sub(r"\W", "_", kind)
    table = made_of(catalog, f"db.{name}", kind, partition_by, values)
    head = table.current_snapshot()
    assert head is not None and len(head.manifests(table.io)) == 1, "every commit has merged"
    columns = "c" if kind != "timestamptz" else "CAST(c AS timestamp_ntz) AS c"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.sql(f"SELECT n, {columns} FROM parts.db.{name}").collect()  # pyright: ignore[reportOptionalCall]
    assert {row.n: plain(row.c) for row in rows} == {number: plain(value) for number, value in enumerate(values)}
    by_pyiceberg = table.scan().to_arrow().to_pylist()
    assert {row["n"]: plain(row["c"]) for row in by_pyiceberg} == {n: plain(value) for n, value in enumerate(values)}

    found = found_by_value(spark, f"parts.db.{name}", kind, values)
    for number, value in enumerate(values):
        if not (isinstance(value, float) and value == 0):
            assert found[number] == [number]
        if kind != "double":
            # PyIceberg itself looks for a double among narrowed partition values: docs/streams.md.
            wanted = IsNull("c") if value is None else EqualTo("c", value)  # pyright: ignore[reportCallIssue]
            alike = [n for n, other in enumerate(values) if other == value]
            assert sorted(table.scan(row_filter=wanted).to_arrow()["n"].to_pylist()) == alike
    if kind in TWINS:
        # A table that Spark itself writes has the same partitions, and the same answers also for both zeros.
        source = f"SELECT n, c FROM parts.db.{name}"
        spark.sql(f"CREATE TABLE parts.db.{name}_twin USING iceberg PARTITIONED BY (c) AS {source}")  # pyright: ignore[reportOptionalCall]
        assert partitions(spark, f"parts.db.{name}") == partitions(spark, f"parts.db.{name}_twin")
        assert found == found_by_value(spark, f"parts.db.{name}_twin", kind, values)
        assert math.copysign(1, next(row.c for row in rows if row.n == values.index(-0.0) + 1)) == -1
