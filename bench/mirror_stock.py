"""Other side of `python -m bench.mirror`: a table kept by `foreachBatch` and MERGE on main, as it is usually done.

`python -m bench.mirror_stock HOME TOPIC TABLE EVERY MODE BUCKETS` runs until its standard input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.mirror_source import COLUMNS, KEYS, PbTable
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_PER_BATCH = "500000"


def main() -> None:
    """Merge until nobody listens any more."""
    home, topic, table, every, mode, buckets = sys.argv[1:]
    settings = load_settings(None, home=Path(home))
    spark = start_session(settings, "foreachBatch and MERGE", work="sql")
    use_catalog(spark, settings)
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    source: PbTable = table  # pyright: ignore[reportAssignmentType]
    name = f"{settings.catalog.name}.lake.{table}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {settings.catalog.name}.lake")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({COLUMNS[source]}) USING iceberg"
        f" PARTITIONED BY (bucket({buckets}, {KEYS[source]})) TBLPROPERTIES ('format-version'='2',"
        f" 'write.parquet.compression-level'='1', 'write.merge.mode'='{mode}')"
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _MOST_PER_BATCH)
        .load()
    )
    query = (
        records.writeStream.foreachBatch(lambda frame, _: merge(frame, name, source))
        .option("checkpointLocation", str(Path(home) / "checkpoint"))
        .trigger(processingTime=every)
        .start()
    )
    sys.stdin.read()
    query.stop()


def merge(frame: DataFrame, name: str, table: PbTable) -> None:
    """Merge a batch: the newest change of each key."""
    spark: SparkSession = frame.sparkSession
    key, columns = KEYS[table], COLUMNS[table]
    names = [each.split()[0] for each in columns.split(", ")]
    row = f"STRUCT<{', '.join(each.replace(' ', ': ') for each in columns.split(', '))}>"
    value = f"payload STRUCT<op: STRING, before: {row}, after: {row}, source: STRUCT<lsn: BIGINT>>"
    frame.createOrReplaceTempView("batch")
    spark.sql(f"""
        CREATE OR REPLACE TEMP VIEW newest AS
        SELECT * FROM (
          SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY lsn DESC, offset DESC) AS number FROM (
            SELECT v.op, v.source.lsn, offset, {", ".join(f"coalesce(v.after.{n}, v.before.{n}) AS {n}" for n in names)}
            FROM (SELECT from_json(CAST(value AS STRING), '{value}').payload AS v, offset FROM batch)
            WHERE v.op IS NOT NULL
          )
        ) WHERE number = 1
    """)
    spark.sql(f"""
        MERGE INTO {name} t USING newest s ON t.{key} = s.{key}
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{n} = s.{n}" for n in names)}
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{n}" for n in names)})
    """)


if __name__ == "__main__":
    main()
