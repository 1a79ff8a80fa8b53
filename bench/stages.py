"""Stages benchmark, where the time of a record goes: `make bench BENCH_ARGS=--stages`, or `python -m bench.stages`.

Fills a topic of a broker of its own, then reads one of its partitions again and again in one process without Spark, as
a task does: to the end of a stage, and one stage further, in turn. The difference between two stages is what the later
one costs; broker and driver are left out. Beside them, what this hardware can do with the same bytes: fetching them
without looking at them, a native JSON parser, a native Parquet writer. `--spark` measures the way that the records do
not go any more: Spark's own Kafka source, alone and to Python through Arrow.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import collections
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from pyarrow.json import ParseOptions, ReadOptions, read_json
from pyiceberg.catalog.sql import SqlCatalog

from bench.spark_source import refuse_without_pandas, spark_stages
from bench.versus.records import Size, schema_text
from bench.versus.topic_load import loaded
from jobs.clients.kafka.consumer import consumer_options
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.range_reader import MOST_RECORDS, read_split
from jobs.clients.kafka.records import FetchedBlock
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.models import StreamSpec
from jobs.local.broker.broker import LocalBroker
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.pipeline.pipeline import stream_pipeline
from jobs.streaming.task.plan import TargetPlan, TaskPlan, task_metadata
from jobs.streaming.task.run import run_split
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.tables.write.table_fit import TableFit

_PATIENCE = 30.0


def main() -> None:
    """Measure all stages in several rounds and print microseconds of CPU per record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("small", "1k"), default="small")
    parser.add_argument("--records", type=int, default=2_000_000, help="in all four partitions; one is read")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spark", action="store_true", help="also Spark's own Kafka source")
    parser.add_argument("--json", type=Path, help="also write the facts of every round there")
    arguments = parser.parse_args()
    if arguments.spark:
        refuse_without_pandas()
    with tempfile.TemporaryDirectory(prefix="frazil-stages-") as name, LocalBroker(Path(name) / "broker") as broker:
        folder, address = Path(name), broker.status().address or ""
        load = loaded(folder, address, arguments.size, arguments.records, lambda said: print(said, file=sys.stderr))
        task = Task(folder, address, load.topic, arguments.size)
        found = measured(task.stages(), task.count, arguments.rounds)
        found |= measured(task.hardware(), task.count, arguments.rounds)
        if arguments.spark:
            found |= measured(spark_stages(folder, address, load.topic, task.count), task.count, arguments.rounds)
    print(table(found, load.value_bytes / load.records))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


def measured(stages: dict[str, Callable[[], float]], count: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of CPU per record of each stage, a round of all after the other; a first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in stages}
    for turn in range(rounds + 1):
        for name, stage in stages.items():
            seconds = stage()
            print(f"round {turn} of {rounds}: {name} {seconds / count * 1e6:.2f} µs", file=sys.stderr)
            if turn:
                found[name].append(seconds / count * 1e6)
    return found


def table(found: dict[str, list[float]], size: float) -> str:
    """Figures as Markdown: µs of CPU per record, and records per CPU-second.

    Args:
        found: Measurements by stage, from `measured`.
        size: Size of a value in bytes.
    """
    lines = ["| up to and with | µs of CPU a record: minimum, median, maximum | records per CPU-second | MB/s |"]
    lines.append("|---|---|---|---|")
    for name, each in found.items():
        middle = statistics.median(each)
        spread = f"{min(each):.2f}, **{middle:.2f}**, {max(each):.2f}"
        lines.append(f"| {name} | {spread} | {1e6 / middle:,.0f} | {size / middle:,.0f} |")
    return "\n".join(lines)


class Task:
    """Slice of a topic, which can be read repeatedly."""

    def __init__(self, folder: Path, address: str, topic: str, size: Size) -> None:
        partition = TopicPartition(topic, 0)
        self.count: int = KafkaLog(KafkaSettings(bootstrap_servers=address)).latest([partition])[partition]
        self._range = PartitionRange(partition, OffsetRange(0, self.count))
        self._options: dict[str, Any] = consumer_options(KafkaSettings(bootstrap_servers=address), "stages")
        spec = StreamSpec.model_validate(
            {
                "stream": "stages",
                "source": {"topics": [topic]},
                "decode": {"value": "json", "schema": schema_text(size)},
                "table": {"name": "bench.stages", "partition_by": ["day(created_at)"]},
            }
        )
        self._decoder = spec.resolved.decoder
        catalog = SqlCatalog("stages", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        ensure_tables(spec, catalog)
        tables = {name: catalog.load_table(name).metadata for name in spec.target_names}
        self._projection = TableFit(tables[spec.table.name].schema())
        self._plan = TaskPlan(
            stream="stages",
            config=spec.config_hash,
            batch=0,
            epoch=1,
            first_seen=datetime.now(UTC),
            resolved=spec.resolved,
            columns=spec.record_columns,
            targets=tuple(TargetPlan(target, task_metadata(tables[target.name])) for target in spec.targets),
            file_prefix="stages",
        )
        self._folder = folder

    def stages(self) -> dict[str, Callable[[], float]]:
        """The action of each stage; each returns its CPU-seconds, librdkafka's threads included."""
        return {
            "fetch (messages, not looked at)": self._timed(self._fetch),
            "read (values, offsets, timestamps in Arrow)": self._timed(lambda: _drop(self._blocks())),
            "… with Python's cycle collector on": self._timed(lambda: _drop(self._blocks()), collector=True),
            "decode": self._timed(self._decode),
            "fit to the table": self._timed(self._fit),
            "write (all that a task does)": self._timed(lambda: run_split(self._plan, self._blocks())),
        }

    def hardware(self) -> dict[str, Callable[[], float]]:
        """Native code on the same bytes, without Kafka."""
        decoder = FORMATS["json"].block(self._decoder)
        values = [block.records.column("value") for block in self._blocks()]
        rows = [decoder.decode(each).rows for each in values]
        schema = pa.schema([field.with_type(_as_json(field.type)) for field in rows[0].schema])
        texts = [pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(v)], pa.int32()), v), b"\n") for v in values]
        options = ParseOptions(explicit_schema=schema)

        def parse() -> None:
            for text in texts:
                data = text.buffers()[2]
                read_json(pa.BufferReader(data), ReadOptions(use_threads=False, block_size=data.size + 1), options)

        def write() -> None:
            pq.write_table(
                pa.Table.from_batches(rows), self._folder / "native.parquet", compression="zstd", compression_level=1
            )

        return {"native: pyarrow's JSON parser": self._timed(parse), "native: Arrow to Parquet": self._timed(write)}

    def _blocks(self) -> Iterator[FetchedBlock]:
        return read_split(self._options, [self._range], _PATIENCE)

    def _fetch(self) -> None:
        consumer, left = Consumer(self._options), self.count
        consumer.assign([ClientPartition(self._range.partition.topic, 0, 0)])
        while left > 0:
            left -= len(consumer.consume(MOST_RECORDS, 0.0) or consumer.consume(1, 1.0))
        consumer.close()

    def _decode(self) -> None:
        decoder = FORMATS["json"].block(self._decoder)
        for block in self._blocks():
            decoder.decode(block.records.column("value"))

    def _fit(self) -> None:
        pipeline = stream_pipeline(self._decoder, "stages", self._projection.apply, columns=RecordColumns())
        for block in self._blocks():
            pipeline.run(block.records)

    def _timed(self, stage: Callable[[], object], *, collector: bool = False) -> Callable[[], float]:
        def run() -> float:
            if not collector:
                gc.disable()
            began = time.process_time()
            stage()
            took = time.process_time() - began
            gc.enable()
            return took

        return run


def _drop(blocks: Iterator[FetchedBlock]) -> None:
    collections.deque(blocks, maxlen=0)


def _as_json(kind: pa.DataType) -> pa.DataType:
    """Type that pyarrow's JSON parser reads by itself; times stay texts."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_json(field.type)) for field in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


if __name__ == "__main__":
    main()
