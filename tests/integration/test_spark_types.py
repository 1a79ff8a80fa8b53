"""Types that Spark has under another name, or not at all: what it reads of them, and what compaction leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.commit.operations import Append
from jobs.commit.pyiceberg_commit import commit_once
from jobs.schema.arrow_schema import rows_arrow_schema
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.partitioning import parse_partition_expr
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from jobs.write.table_fit import TableFit
from jobs.write.target_writer import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

UUIDS = [
    UUID("00000000-0000-0000-0000-000000000000"),
    UUID("7fffffff-ffff-ffff-7fff-ffffffffffff"),
    UUID("80000000-0000-0000-8000-000000000000"),
    UUID("ffffffff-ffff-ffff-ffff-ffffffffffff"),
    UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    None,
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[SqlCatalog]:
    """One for all: Spark keeps a catalog once it is used."""
    tmp_path = tmp_path_factory.mktemp("types")
    made = SqlCatalog("types", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    spark.conf.set("spark.sql.catalog.types", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.types.{key}", value)
    yield made
    made.close()


def made_of(catalog: SqlCatalog, name: str, columns: str, partition_by: list[str], rows: list[dict[str, Any]]) -> Table:
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


@pytest.mark.parametrize("partition_by", [[], ["bucket(2, u)", "bucket(2, f)"]])
def test_uuids_and_fixed_are_read_found_and_compacted(
    catalog: SqlCatalog, spark: SparkSession, partition_by: list[str]
) -> None:
    """Row groups in which uuids of both halves stand: Spark must not leave them out when it looks for one."""
    name = f"db.uuids{len(partition_by)}"
    rows = [
        {"n": n, "u": u and u.bytes, "f": u and u.bytes[:4], "l": [u and u.bytes, None], "s": {"u": u and u.bytes}}
        for n, u in enumerate(UUIDS)
    ]
    table = made_of(catalog, name, "n int, u uuid, f fixed(4), l list<uuid>, s struct<u uuid>", partition_by, rows)

    def agrees() -> None:
        found = catalog.load_table(name).scan()
        by_pyiceberg = {row["n"]: row for row in found.to_arrow().to_pylist()}
        by_spark = {row.n: row for row in collected(spark, f"SELECT * FROM types.{name}")}
        for n, u in enumerate(UUIDS):
            text, four = u and str(u), u and u.bytes[:4]
            assert (by_pyiceberg[n]["u"], by_pyiceberg[n]["f"]) == (u, four)
            assert (by_pyiceberg[n]["l"], by_pyiceberg[n]["s"]) == ([u, None], {"u": u})
            assert (by_spark[n].u, by_spark[n].f and bytes(by_spark[n].f)) == (text, four)
            assert (by_spark[n].l, by_spark[n].s.u) == ([text, None], text)
        for n, u in enumerate(UUIDS[:-1]):
            assert [row.n for row in collected(spark, f"SELECT n FROM types.{name} WHERE u = '{u}'")] == [n]
            assert [row.n for row in collected(spark, f"SELECT n FROM types.{name} WHERE s.u = '{u}'")] == [n]
            above = {n for n, other in enumerate(UUIDS) if other and u and other.int > u.int}
            assert {row.n for row in collected(spark, f"SELECT n FROM types.{name} WHERE u > '{u}'")} == above
            wanted = EqualTo("u", u)  # pyright: ignore[reportCallIssue]
            assert table.scan(row_filter=wanted).to_arrow()["n"].to_pylist() == [n]

    agrees()
    (done,) = collected(
        spark,
        f"CALL types.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    )
    assert done.rewritten_data_files_count > 0
    agrees()


def test_spark_reads_no_table_with_a_time(catalog: SqlCatalog, spark: SparkSession) -> None:
    """If it does one day, `jobs.schema.spark_types` can go."""
    table = made_of(catalog, "db.times", "n int, t time", ["bucket(2, t)"], [{"n": 1, "t": 3_600_000_001}])
    (row,) = table.scan().to_arrow().to_pylist()
    assert row["t"].isoformat() == "01:00:00.000001"
    for query in ("SELECT n FROM types.db.times", "CALL types.system.rewrite_data_files(table => 'db.times')"):
        with pytest.raises(Exception, match="Spark does not support time fields"):
            collected(spark, query)
