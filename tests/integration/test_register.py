"""A table of Spark's Hadoop catalog, registered and landed into, and read by Spark through its new catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from orchestration.cli.main import main
from tests.integration.pipeline import GOOD, Pipeline
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def frazil(one: Pipeline, *words: str) -> str:
    result = CliRunner().invoke(main, ["--home", str(one.home), *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_table_of_a_hadoop_warehouse_goes_on(
    pipeline: Callable[..., Pipeline], spark: SparkSession, tmp_path: Path
) -> None:
    former, warehouse = "former", tmp_path / "former"
    spark.conf.set(f"spark.sql.catalog.{former}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{former}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{former}.warehouse", str(warehouse))
    spark.sql(
        f"CREATE TABLE {former}.pay.ments (id string NOT NULL, amount decimal(12,2) NOT NULL, "
        "created_at timestamp NOT NULL, note string) USING iceberg PARTITIONED BY (days(created_at))"
    )
    for number in range(3):
        spark.sql(
            f"INSERT INTO {former}.pay.ments VALUES ('old-{number}', 1.50, timestamp '2026-10-01 10:00:00', NULL)"
        )
    # As a writer leaves it that dies between the version's file and its hint.
    (warehouse / "pay" / "ments" / "metadata" / "version-hint.text").write_text("2")

    one = pipeline()
    folder = str(warehouse / "pay" / "ments")
    looked = json.loads(frazil(one, "register", one.table_name, folder, "--dry-run", "--json"))
    assert (looked["rows"], looked["snapshots"], looked["registered"]) == (3, 3, False)
    frazil(one, "register", one.table_name, folder, "--yes")
    frazil(one, "schema", "apply", one.stream, "--yes")
    one.produce({GOOD: 20})
    one.drain(spark)
    assert one.table().scan().count() == 23
    session, name = with_catalog(spark, one)
    rows = session.sql(f"SELECT count(*), count(_kafka_offset), min(id) FROM {name}").collect()[0]
    assert tuple(rows) == (23, 20, "old-0")
    # Whoever still reads the warehouse sees the table as it was, and no file of it is gone.
    assert session.table(f"{former}.pay.ments").count() == 3
    audited = json.loads(frazil(one, "audit", one.stream, "--json"))
    assert audited["problems"] == []
