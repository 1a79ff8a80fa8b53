"""Versions and settings of both sides, and what of them favours one: printed with every comparison."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from bench.versus.connect_worker import JVM
from bench.versus.deployment import BenchDeployment
from bench.versus.formats import PAYMENT_FORMATS
from bench.versus.sink_config import CONSUMER, SinkConfig
from bench.versus.topic_load import PRODUCER, Load
from jobs.clients.install.coordinates import ArtifactSet, artifact_sets
from jobs.clients.install.preflight import check_java
from jobs.tables.write.table_creation import create_table_properties
from orchestration.cli.local.demo.payments import PARTITIONS

FAVOURS: Mapping[str, Sequence[str]] = {
    "frazil": (
        "its last commit follows its last record; the sink commits by interval alone, so its whole run ends with a "
        "wait of up to one interval, in which little CPU is used. The steady part has none of this",
        "Spark's classes come from the archive that `make setup` makes; the worker's JVM loads its own anew, "
        "a matter of a second or two of the whole run",
    ),
    "the sink": (
        "frazil checks every value exactly, keeps records that fail as dead letters and stamps each commit with "
        "Kafka's offsets; the sink rounds and converts silently, and its first bad record fails the task. The payments "
        "are all good, so that it can run at all",
        "its consumer fetches more at once than by default, idle tasks answer a commit within a second and not a "
        "minute, and Hadoop writes no checksum files beside its files",
        "its table and its control topic are made before its time begins; frazil makes its tables within",
        "frazil has no interval here but lands batch after batch: where one takes it less than the sink's interval, it "
        "commits more often",
        "its garbage collector is the one with the most throughput, its heap twice that of frazil's driver",
        "both sides share the cores with the broker: the faster side makes it work more in the same time",
    ),
}


def settings_of(
    home: BenchDeployment, loads: Sequence[Load], batch: int, sink: SinkConfig
) -> dict[str, dict[str, str]]:
    """Settings that a reader needs to repeat the comparison, by title."""
    formats = [PAYMENT_FORMATS[load.format] for load in loads]
    registry = any(format_.registry_kind for format_ in formats)
    settings = home.deployment.settings()
    table = create_table_properties({})
    return {
        "Both": {
            "machine": f"{os.cpu_count()} cores, {_memory():.0f} GB, {platform.system()} {platform.release()}",
            "Java": (check_java().build.splitlines() or [str(check_java().version)])[0],
            "broker": f"{_named('broker', 'kafka_2.13')}, one node on the same machine",
            "topic" if len(loads) == 1 else "topics": "; ".join(
                f"{load.records:,} records of {load.value_bytes / load.records:.0f} bytes, {format_.title}"
                for load, format_ in zip(loads, formats, strict=True)
            )
            + f", {PARTITIONS} partitions, {PRODUCER['compression.type']}",
            **({"registry": f"{_named('registry', 'apicurio-registry-app')}, on the same machine"} if registry else {}),
            "catalog": "SQLite, a file for each run; data in a local folder",
            "table": f"day(created_at), Parquet, {table['write.parquet.compression-codec']} level "
            f"{table['write.parquet.compression-level']}, files of up to "
            f"{int(table['write.target-file-size-bytes']) // 2**20} MB, the same columns and properties",
        },
        "Connect sink": {
            "versions": ", ".join(
                _named("connect", name)
                for name in ("connect-runtime", "iceberg-kafka-connect", "apicurio-registry-utils-converter")
            ),
            "worker": "standalone, `offset.flush.interval.ms=1000`",
            "JVM": f"`{' '.join(JVM)}`",
            "tasks": str(sink.tasks),
            "commit interval": f"{sink.commit_ms / 1000:g} s",
            "converter": "; ".join(format_.converter for format_ in formats if format_.converter) or "none reads them",
            "transform": "`InsertField$Value` for `_kafka_topic`, `_partition`, `_offset`, `_timestamp`",
            "consumer": ", ".join(f"`{key}={value}`" for key, value in {**CONSUMER, **sink.consumer}.items()),
        },
        "frazil": {
            "versions": f"frazil {version('frazil')}, PySpark {version('pyspark')}, PyArrow {version('pyarrow')}, "
            f"PyIceberg {version('pyiceberg')}, Python {platform.python_version()}, "
            f"{_named('spark', 'spark-sql-kafka-0-10_2.13')}",
            "command": "`frazil run payments`",
            "Spark": f"`{settings.spark.master}`, driver with {settings.spark.driver_memory}",
            "batch": f"up to {batch:,} records, one commit each",
            "dead letters, stamps, `_kafka` columns": "on",
        },
    }


def _named(artifacts: ArtifactSet, name: str) -> str:
    found = next(each for each in artifact_sets()[artifacts] if each.name == name)
    return f"{found.name} {found.version}"


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
