"""Takeover benchmark: `python -m bench.takeover [--rows N]`.

A broker of its own and a topic of payments. The real Iceberg sink lands them, and is stopped by REST once the table has
a third. Then the stream takes over: announced files are completed, the rest is landed, and the seam is audited. The
time begins with the request to stop the connector. In the end (topic, partition, offset) is counted over the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from bench.versus.connect_worker import SinkWorker
from bench.versus.deployment import STREAM, TABLE, BenchDeployment
from bench.versus.sink_config import SinkConfig
from bench.versus.topic_load import loaded
from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.local.broker.broker import LocalBroker
from jobs.migration.connect_worker import ConnectWorker
from jobs.migration.takeover.sink import sink_of_config
from jobs.migration.takeover.takeover import take_over_from_sink
from jobs.migration.takeover.takeover_plan import TakeoverRequest
from jobs.migration.takeover.takeover_seam import seam_of
from jobs.streaming.driver.process.drain import drain

_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """Result of the measurement.

    Attributes:
        sink_rows: Rows that the sink had committed.
        completed_rows: Rows of announced files that the takeover committed.
        landed_rows: Rows that the stream landed.
        stopped_seconds, taken_seconds, landed_seconds, audited_seconds: Since the request to stop the connector.
        missing, doubled: Records that are in the table not at all, or more than once.
    """

    records: int
    sink_rows: int
    completed_rows: int
    landed_rows: int
    stopped_seconds: float
    taken_seconds: float
    landed_seconds: float
    audited_seconds: float
    missing: int
    doubled: int


def main() -> None:
    """Run it, and print the figures as a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="records in the topic")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-takeover-") as folder:
        print(json.dumps(asdict(measured(Path(folder), arguments.rows)), indent=2))


def measured(folder: Path, records: int) -> Takeover:
    """Measure one takeover.

    Args:
        folder: An empty folder.
        records: Records in the topic.
    """
    broker = LocalBroker(folder / "broker")
    address = broker.start()
    try:
        load = loaded(folder, address, "small", records, _say)
        home = BenchDeployment.of(folder / "home", load, address)
        worker = SinkWorker(home, address, SinkConfig(load.topic, commit_ms=5_000))
        with worker:
            worker.wait_until_running()
            _await_rows(home, records // 3)
            return _taken_over(home, worker, records)
    finally:
        broker.stop()


def _taken_over(home: BenchDeployment, worker: SinkWorker, records: int) -> Takeover:
    spec, settings = home.spec, home.deployment.settings()
    connect = ConnectWorker(worker.rest)
    (name,) = worker.connectors
    sink = sink_of_config(name, connect.config(name))
    began = time.monotonic()
    connect.stop(name)
    stopped = time.monotonic() - began
    _say("the connector is asked to stop")
    plan = take_over_from_sink(
        spec, settings, TakeoverRequest(sink, connect, stop_connector=True), "bench", "measured", on_wait=_say
    )
    taken = time.monotonic() - began
    completed = sum(each.rows for each in plan.tables)
    before = _count(home.catalog().load_table(TABLE))
    worker.stop()
    session = start_session(settings, "frazil bench")
    try:
        drained = drain(spec, settings, KafkaLog(settings.kafka), lambda: session)
    finally:
        end_spark()
    landed = time.monotonic() - began
    seam = seam_of(spec, settings, home.catalog(), plan)
    audited = time.monotonic() - began
    if not seam.sound:
        raise FrazilError(f"the audit of stream {STREAM} found {seam.missing} missing and {seam.doubled} doubled")
    missing, doubled = _compared(home.catalog().load_table(TABLE), records)
    return Takeover(
        records,
        before - completed,
        completed,
        drained.counts.landed,
        *(round(each, 1) for each in (stopped, taken, landed, audited)),
        missing=missing,
        doubled=doubled,
    )


def _await_rows(home: BenchDeployment, rows: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _count(home.catalog().load_table(TABLE)) < rows:
        if time.monotonic() > deadline:
            raise FrazilError(f"the sink has not landed {rows:,} rows within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _count(table: Table) -> int:
    head = table.metadata.current_snapshot()
    return int(head.summary.additional_properties.get("total-records", 0)) if head and head.summary else 0


def _compared(table: Table, records: int) -> tuple[int, int]:
    """Records that the table lacks, and rows that it has too many, by partition and offset."""
    places = table.scan(selected_fields=("_kafka_partition", "_kafka_offset")).to_arrow()
    partition = pc.cast(places["_kafka_partition"], pa.int64())
    # A partition's number and an offset fit one long.
    keys = pc.add(pc.shift_left(partition, pa.scalar(48, pa.int64())), places["_kafka_offset"])
    distinct = pc.count_distinct(keys).as_py()
    return records - distinct, places.num_rows - distinct


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
