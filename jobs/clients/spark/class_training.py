"""Training run of the class archive: `python -m jobs.clients.spark.class_training FILE FOLDER`."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.clients.spark.class_archive import class_path_jars, quoted
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.log import spark_log_option
from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WRITING_SECONDS = 120.0
# Parts of the Kafka client that a reader does not use.
_NOT_READ_WITH = ("/shaded/", "/producer/", "/oauthbearer/", "/kafka/server/", "/proxy/")


def train(archive: Path, folder: Path) -> None:
    """Run a small query and load the classes of the Kafka source; the JVM writes the archive when it ends.

    Args:
        archive: File of the archive.
        folder: An empty folder for everything else.
    """
    settings = Settings.embedded(folder)
    small = settings.spark.model_copy(update={"driver_memory": "1g", "master": "local[2]"})
    options = [
        spark_log_option(folder / "logs" / "spark.log", 10_000_000, 2),
        quoted(f"-XX:ArchiveClassesAtExit={archive}"),
    ]
    spark = start_session(
        settings.model_copy(update={"spark": small}),
        "frazil",
        java_options=" ".join(options),
        conf={"spark.ui.port": "0"},
    )
    _query(spark, folder)
    _load_kafka(spark)
    end_spark(grace_seconds=_WRITING_SECONDS)


def _query(spark: SparkSession, folder: Path) -> None:
    source = folder / "source"
    source.mkdir()
    (source / "one.txt").write_text("1\n2\n3\n")

    def land(frame: DataFrame, batch: int) -> None:
        # A batch only uses the frame's session, and runs tasks in Python.
        frame.sparkSession.sparkContext.parallelize([1, 2], 2).mapPartitions(_pass_on).collect()

    query = (
        spark.readStream.format("text")
        .load(source.as_uri())
        .writeStream.foreachBatch(land)
        .option("checkpointLocation", (folder / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _pass_on(values: Iterable[int]) -> list[int]:
    return list(values)


def _load_kafka(spark: SparkSession) -> None:
    """Load the classes of the Kafka source and its client: a query without a broker would load few of them."""
    from py4j.protocol import Py4JJavaError

    spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t").load()
    jvm: Any = spark._jvm
    # Looked up once, because every attribute access asks the JVM.
    for_name = jvm.java.lang.Class.forName
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in class_path_jars():
        with zipfile.ZipFile(jar) as content:
            names = [name.removesuffix(".class") for name in content.namelist() if name.endswith(".class")]
        for name in names:
            if name.startswith("META-INF") or any(part in name for part in _NOT_READ_WITH):
                continue
            # A few classes need libraries that are not installed.
            with contextlib.suppress(Py4JJavaError):
                for_name(name.replace("/", "."), False, loader)


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]))
