"""Spark's Kafka source to Python, which frazil's records do not pass: the figures beside `bench.stages`."""

from __future__ import annotations

import importlib.util
import json
import queue
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from jobs.base.system.cpu import tree_cpu_seconds
from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ASKING, _NOT_ASKING = str(64 * 1024 * 1024), str(2**31 - 1)
_SIZE = "spark.sql.execution.arrow.maxBytesPerBatch"


def refuse_without_pandas() -> None:
    """End with a sentence if pandas is missing, which PySpark asks for where Python gets Arrow."""
    if importlib.util.find_spec("pandas") is None:
        raise SystemExit(
            "error: Spark's way to Python through Arrow needs pandas, which nothing else here does.\n"
            f"  Next: {sys.executable} -m pip install 'pandas>=2.2,<3', and `pip uninstall pandas` behind it"
        )


def spark_stages(folder: Path, address: str, topic: str, count: int) -> dict[str, Callable[[], float]]:
    """The action of each stage; each runs one micro-batch of so many records and returns its CPU-seconds."""
    stages: dict[str, Callable[[DataFrame], object]] = {
        "Spark's Kafka source alone": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "… to Python through Arrow": lambda frame: _to_python(frame, _ASKING),
        "… without asking for Arrow's size": lambda frame: _to_python(frame, _NOT_ASKING),
    }
    found: dict[str, Callable[[], float]] = {}
    for polls, said in (("500", "Kafka's default of 500 records a poll"), ("5000", "5,000 records a poll")):
        batches = _Batches(folder / f"spark-{polls}", address, topic, count, polls)
        for name, stage in stages.items():
            found[f"{name}, {said}"] = lambda batches=batches, stage=stage: batches.next(stage)
    return found


class _Batches:
    """A query whose batches are what somebody asks for; all of one partition, from its start."""

    def __init__(self, folder: Path, address: str, topic: str, count: int, polls: str) -> None:
        self._wanted: queue.Queue[Callable[[DataFrame], object]] = queue.Queue()
        self._done: queue.Queue[float | Exception] = queue.Queue()
        self._options: dict[str, Any] = {
            "kafka.bootstrap.servers": address,
            "assign": json.dumps({topic: [0, 1, 2, 3]}),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(count),
            "includeHeaders": "true",
            "kafka.max.poll.records": polls,
        }
        self._folder: Path = folder
        self._query: Any = None
        self._number: int = 0

    def next(self, stage: Callable[[DataFrame], object]) -> float:
        """Run a batch."""
        if self._query is None or not self._query.isActive:
            self._start()
        self._wanted.put(stage)
        while True:
            try:
                done = self._done.get(timeout=1.0)
                if isinstance(done, Exception):
                    raise done
                return done
            except queue.Empty:
                if self._query is not None and not self._query.isActive:
                    self._start()

    def _start(self) -> None:
        """Start a query at the beginning of the topic, again each time the topic has been read."""
        self._number += 1
        spark = start_session(Settings.embedded(self._folder), "frazil stages", work="sql")
        self._query = (
            spark.readStream.format("kafka")
            .options(**self._options)
            .load()
            .writeStream.foreachBatch(self._run)
            .option("checkpointLocation", f"file://{self._folder}/{self._number}")
            .trigger(availableNow=True)
            .start()
        )

    def _run(self, frame: DataFrame, batch: int) -> None:
        stage = self._wanted.get()
        began = tree_cpu_seconds() or 0.0
        try:
            stage(frame)
        except Exception as problem:
            self._done.put(problem)
            raise
        self._done.put((tree_cpu_seconds() or 0.0) - began)


def _to_python(frame: DataFrame, size: str) -> None:
    frame.sparkSession.conf.set(_SIZE, size)
    rows = frame.selectExpr("key", "value", "partition", "offset", "timestamp", "timestampType")
    rows.mapInArrow(cast(Any, _count), "n long").collect()


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], names=["n"])
