"""Partitions and types as Spark reads them: it finds each row by its value, as in tables of its own."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.table import Table

from jobs.config.values.partitioning import parse_partition_expr
from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

LEAP_DAY = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)
FLOATS = [0.0, -0.0, 1.5, -2.25]
# Types whose values Spark could narrow or encode otherwise.
CASES: dict[str, tuple[list[str], list[Any]]] = {
    "float": (["c"], [*FLOATS, 3.4028234663852886e38, 1.401298464324817e-45]),
    "double": (["c"], [*FLOATS, 0.1, 1.7976931348623157e308, 5e-324, 16777217.0]),
    "decimal(38,2)": (["c", "bucket(7, c)", "truncate(50, c)"], [Decimal("9" * 36 + ".99"), Decimal("-0.01")]),
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
        case _:
            text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
            return f"CAST('{text}' AS {'timestamp' if kind == 'timestamptz' else kind})"


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
            # PyIceberg itself looks for a double among narrowed partition values: docs/reference/streams.md.
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


UUIDS = [
    UUID("7fffffff-ffff-ffff-7fff-ffffffffffff"),
    UUID("80000000-0000-0000-8000-000000000000"),
    UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    None,
]


def made_of_rows(
    catalog: SqlCatalog, name: str, columns: str, partition_by: list[str], rows: list[dict[str, Any]]
) -> Table:
    """A table with two commits."""
    schema = iceberg_schema(parse_schema(columns))
    spec = partition_spec([parse_partition_expr(text) for text in partition_by], schema)
    table = ensure_table(catalog, name, schema, spec, create_table_properties({}, schema))
    for some in (rows[:1], rows[1:]):
        writer = TargetWriter(table.metadata, table.io, file_prefix="x")
        batch = pa.RecordBatch.from_pylist(some, schema=rows_arrow_schema(schema))
        writer.write(TableFit(table.schema(), table.spec()).apply(batch))
        commit_once(table, Append(writer.close()), summary={}, properties={})
    return table


def collected(spark: SparkSession, query: str) -> list[Any]:
    return spark.sql(query).collect()  # pyright: ignore[reportOptionalCall]


def test_uuids_and_fixed_are_read_found_and_compacted(catalog: SqlCatalog, spark: SparkSession) -> None:
    """Spark finds a uuid also in row groups in which uuids of both halves stand, and in buckets."""
    columns = "n int, u uuid, f fixed(4), l list<uuid>, s struct<u uuid>"
    rows = [
        {"n": n, "u": u and u.bytes, "f": u and u.bytes[:4], "l": [u and u.bytes, None], "s": {"u": u and u.bytes}}
        for n, u in enumerate(UUIDS)
    ]
    made_of_rows(catalog, "db.buckets", columns, ["bucket(2, u)", "bucket(2, f)"], rows)
    for n, u in enumerate(UUIDS[:-1]):
        assert [row.n for row in collected(spark, f"SELECT n FROM parts.db.buckets WHERE u = '{u}'")] == [n]
    table = made_of_rows(catalog, "db.uuids", columns, [], rows)

    def agrees() -> None:
        found = catalog.load_table("db.uuids").scan()
        by_pyiceberg = {row["n"]: row for row in found.to_arrow().to_pylist()}
        by_spark = {row.n: row for row in collected(spark, "SELECT * FROM parts.db.uuids")}
        for n, u in enumerate(UUIDS):
            text, four = u and str(u), u and u.bytes[:4]
            assert (by_pyiceberg[n]["u"], by_pyiceberg[n]["f"]) == (u, four)
            assert (by_pyiceberg[n]["l"], by_pyiceberg[n]["s"]) == ([u, None], {"u": u})
            assert (by_spark[n].u, by_spark[n].f and bytes(by_spark[n].f)) == (text, four)
            assert (by_spark[n].l, by_spark[n].s.u) == ([text, None], text)
        for n, u in enumerate(UUIDS[:-1]):
            assert [row.n for row in collected(spark, f"SELECT n FROM parts.db.uuids WHERE u = '{u}'")] == [n]
            assert [row.n for row in collected(spark, f"SELECT n FROM parts.db.uuids WHERE s.u = '{u}'")] == [n]
            above = {n for n, other in enumerate(UUIDS) if other and u and other.int > u.int}
            assert {row.n for row in collected(spark, f"SELECT n FROM parts.db.uuids WHERE u > '{u}'")} == above
            wanted = EqualTo("u", u)  # pyright: ignore[reportCallIssue]
            assert table.scan(row_filter=wanted).to_arrow()["n"].to_pylist() == [n]

    agrees()
    (done,) = collected(
        spark, "CALL parts.system.rewrite_data_files(table => 'db.uuids', options => map('rewrite-all', 'true'))"
    )
    assert done.rewritten_data_files_count > 0
    agrees()


def test_spark_reads_no_table_with_a_time(catalog: SqlCatalog, spark: SparkSession) -> None:
    """If it does one day, `jobs.records.schema.iceberg_schema` can go."""
    table = made_of_rows(catalog, "db.times", "n int, t time", ["bucket(2, t)"], [{"n": 1, "t": 3_600_000_001}])
    (row,) = table.scan().to_arrow().to_pylist()
    assert row["t"].isoformat() == "01:00:00.000001"
    for query in ("SELECT n FROM parts.db.times", "CALL parts.system.rewrite_data_files(table => 'db.times')"):
        with pytest.raises(Exception, match="Spark does not support time fields"):
            collected(spark, query)
