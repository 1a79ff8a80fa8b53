"""What frazil writes is an ordinary Iceberg table: Spark reads the same rows, and both Spark and PyIceberg prune."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from jobs.clients.spark.catalog_conf import use_catalog
from jobs.clients.spark.class_archive import archive_option, fitting_archive
from jobs.clients.spark.worker_daemon import TASKS
from tests.helpers.catalogs import with_jars
from tests.integration.pipeline import ROOT, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

SCHEMA = """
    id long not null, amount decimal(12,2), at timestamptz, wall timestamp, day date, ok boolean, ratio double,
    raw binary, tags list<string>, props map<string, long>, person struct<name string, age int>
"""


def record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": number + 0.25,
        "at": f"2026-11-{1 + number % 4:02d}T23:30:00.123456+02:00",
        "wall": "2026-11-01 10:00:00",
        "day": "2026-02-28",
        "ok": number % 2 == 0,
        "ratio": 0.1 * number,
        "raw": "AAEC",
        "tags": ["a", None, str(number)],
        "props": {"k": number},
        "person": {"name": f"n{number}", "age": None},
    }


def with_catalog(spark: SparkSession, pipeline: Pipeline) -> tuple[SparkSession, str]:
    """A session that knows the deployment's catalog, and the table's full name there.

    The session is new: one that has used a catalog keeps it under its name, whatever the configuration says later.
    """
    settings = pipeline.settings()
    session = with_jars(spark.newSession(), settings)
    use_catalog(session, settings)
    return session, f"{settings.catalog.name}.{pipeline.table_name}"


def test_spark_and_pyiceberg_agree_and_prune(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline(partitions=1)
    one.write_spec(SCHEMA, table={"name": one.table_name, "partition_by": ["day(at)", "bucket(2, id)"]})
    producer = Producer({"bootstrap.servers": one.address})
    for number in range(200):
        producer.produce(one.stream, json.dumps(record(number)).encode())
    assert producer.flush(120) == 0
    assert one.drain(spark).counts.landed == 200
    session, name = with_catalog(spark, one)
    session.conf.set("spark.sql.adaptive.enabled", "false")

    by_spark = {row.id: row for row in session.table(name).collect()}
    by_pyiceberg = {row["id"]: row for row in one.table().scan().to_arrow().to_pylist()}
    assert by_spark.keys() == by_pyiceberg.keys() == set(range(200))
    row = by_spark[3]
    assert str(row.amount) == "3.25"
    assert row.tags == ["a", None, "3"]
    assert row.props == {"k": 3}
    assert row.person.name == "n3" and row.person.age is None
    assert bytes(row.raw) == b"\x00\x01\x02"
    assert row._kafka_topic == one.stream
    assert by_pyiceberg[3]["at"].isoformat() == "2026-11-04T21:30:00.123456+00:00"
    assert by_pyiceberg[3]["wall"].isoformat() == "2026-11-01T10:00:00"

    # Partitions: 4 days × 2 buckets. One day leaves two files.
    assert len(list(one.table().scan().plan_files())) == 8
    assert len(list(one.table().scan("at >= '2026-11-04T00:00:00+00:00'").plan_files())) == 2
    # Statistics: no file holds this amount, so neither engine opens one.
    assert list(one.table().scan("amount > 100000").plan_files()) == []
    assert scanned_files(session, f"SELECT * FROM {name} WHERE amount > 100000") == 0
    assert scanned_files(session, f"SELECT * FROM {name} WHERE at >= TIMESTAMP '2026-11-04 00:00:00 UTC'") == 2
    assert scanned_files(session, f"SELECT * FROM {name}") == 8


def scanned_files(spark: SparkSession, query: str) -> int:
    """The data files that Iceberg's scan gave Spark to read, by the scan's own metric."""
    frame = spark.sql(query)  # pyright: ignore[reportOptionalCall]
    frame.collect()
    execution: Any = frame._jdf
    leaves = execution.queryExecution().executedPlan().collectLeaves()
    metrics = [leaves.apply(i).metrics() for i in range(leaves.size())]
    assert len(metrics) == 1
    return int(metrics[0].apply("resultDataFiles").value())


def test_a_worker_has_what_the_tasks_import_before_its_first_task(spark: SparkSession) -> None:
    def loaded(values: Iterable[int]) -> list[bool]:
        return [name in sys.modules for name in TASKS]

    assert all(spark.sparkContext.parallelize([1], 1).mapPartitions(loaded).collect())


def test_a_jvm_that_does_not_start_says_where_it_said_why(tmp_path: Path) -> None:
    """In a process of its own: a process has one context."""
    program = f"""
from pathlib import Path
from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import Settings
settings = Settings.embedded(Path({str(tmp_path)!r}))
spark = settings.spark.model_copy(update={{"driver_memory": "1k"}})
start_session(settings.model_copy(update={{"spark": spark}}), "t", output=Path({str(tmp_path)!r}) / "spark.log")
"""
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert "FrazilError: Spark did not start: " in told.stderr
    assert "maximum heap" in (tmp_path / "spark.log").read_text()


def test_a_session_has_its_classes_from_the_archive(spark: SparkSession) -> None:
    if not archive_option():
        pytest.skip("there is no archive here, or none is wanted: make setup makes it")
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    maps = Path(f"/proc/{process.pid}/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what a process maps")
    # One that a JVM finds fault with is not mapped, or not for long.
    assert str(fitting_archive()) in maps.read_text()
