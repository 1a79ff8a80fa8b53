"""Many small streams in one driver, beside as many connectors in one Connect worker: `python -m bench.groups`.

python -m bench.groups [--streams 50] [--rate 20] [--seconds 180] [--every 10] [--only frazil|connect]

A broker of its own; each stream has a topic of one partition and a table of its own, in one catalog of SQLite. Records
of about 110 bytes come at a steady rate. Once every stream has landed some, memory (pages that several processes share
count once) and processor time are read for so many seconds: of frazil's driver with its JVM, workers and keeper, and of
the Connect worker. A record's time begins with its timestamp in Kafka and ends with that of the snapshot that brought
it; which records a snapshot brought is read from the data files that it added.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from confluent_kafka import Producer
from pyiceberg.table import Table

from bench.groups_connect import ConnectGroup
from bench.versus.measurement import interpolated
from bench.versus.process_usage import UsageSampler
from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.processes.termination import Timeouts

GROUP = "small"
SCHEMA = "id string not null, n long, amount double, note string"
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The load that is measured.

    Args:
        streams: Number of streams.
        rate: Records a second of each.
        seconds: Measured, once all are warm.
        every: Seconds of the trigger, and of the sink's commit interval.
    """

    streams: int
    rate: float
    seconds: float
    every: float

    @property
    def names(self) -> list[str]:
        """The names of streams, topics and tables."""
        return [f"s{number:03}" for number in range(self.streams)]


@dataclass(frozen=True, slots=True)
class Measured:
    """Usage of one side while it was measured.

    Args:
        memory: The median of bytes in memory; `most_memory` the most.
        cores: Processor seconds a second.
        gaps: Seconds between two commits of a table, of all tables together.
        latencies: Seconds of each record.
        records: Landed in that time.
    """

    memory: float
    most_memory: float
    cores: float
    gaps: np.ndarray
    latencies: np.ndarray
    records: int


class Home:
    """The files of a deployment with so many streams, and their tables.

    Args:
        path: Folder of the deployment, which does not exist yet.
        address: The broker.
        plan: Says how many.
    """

    def __init__(self, path: Path, address: str, plan: Plan) -> None:
        self.path: Path = path
        (path / "streams").mkdir(parents=True)
        settings: dict[str, Any] = {"kafka": {"bootstrap_servers": address}, "groups": {"default": GROUP}}
        (path / "frazil.yaml").write_text(yaml.safe_dump(settings))
        self.settings: Settings = load_settings(None, home=path)
        catalog = connect_catalog(self.settings)
        for name in plan.names:
            document = {
                "stream": name,
                "source": {"topics": [name], "start": "latest"},
                "decode": {"value": "json", "schema": SCHEMA},
                "table": {"name": f"lake.{name}"},
                "trigger": {"every": f"{plan.every:g}s"},
            }
            (path / "streams" / f"{name}.yaml").write_text(yaml.safe_dump(document))
            ensure_tables(StreamSpec.model_validate(document), catalog)

    def table(self, name: str) -> Table:
        """A stream's table as it is now."""
        return connect_catalog(self.settings).load_table(f"lake.{name}")


@contextmanager
def produced(address: str, plan: Plan) -> Iterator[None]:
    """Produces to all topics at the plan's rate for the length of the block."""
    enough = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": address, "acks": "1", "linger.ms": 20, "log_level": 0})
        began, number = time.monotonic(), 0
        while not enough.is_set():
            for name in plan.names:
                value = {"id": f"id-{number:012}", "n": number, "amount": 1234.5, "note": "x" * 30}
                producer.produce(name, json.dumps(value).encode())
            number += 1
            producer.poll(0)
            enough.wait(max(0.0, began + number / plan.rate - time.monotonic()))
        producer.flush(30)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@contextmanager
def frazil(home: Home, plan: Plan, say: Callable[[str], None]) -> Iterator[int]:
    """Starts all streams in one group; yields the process of its driver."""
    controls = {name: StreamControl(home.path, None, name) for name in plan.names}
    group = DriverGroup.of(home.settings, GROUP)
    try:
        for number, control in enumerate(controls.values()):
            control.start("a benchmark", "bench")
            if number % 10 == 9:
                say(f"{number + 1} streams are started")
        process = read_launched_process(group.folder.store)
        assert process is not None
        yield process.pid
    finally:
        say("the streams are stopped")
        for control in controls.values():
            control.stop("a benchmark", "bench")
        # Before its folder is taken away.
        if (driver := group.ask_to_end("a benchmark", Timeouts())) is not None:
            group.end(driver, Timeouts())


def arrivals(table: Table, since: float, until: float) -> tuple[list[float], list[np.ndarray]]:
    """Commit times of a table's snapshots, and the timestamps of each one's records, in seconds since 1970.

    Only snapshots within the given time that added data files count.
    """
    times: list[float] = []
    records: list[np.ndarray] = []
    for snapshot in table.metadata.snapshots:
        at = snapshot.timestamp_ms / 1000
        if not since <= at <= until:
            continue
        stamps: list[np.ndarray] = []
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.snapshot_id == snapshot.snapshot_id:
                    file = entry.data_file.file_path.removeprefix("file:").replace("///", "/")
                    column = pq.read_table(file, columns=["_kafka_timestamp"]).column(0)
                    stamps.append(column.cast("timestamp[us]").to_numpy().astype(np.int64) / 1e6)
        if stamps:
            times.append(at)
            records.append(np.concatenate(stamps))
    return times, records


def measured(pid: int, broker: int, home: Home, plan: Plan, say: Callable[[str], None]) -> Measured:
    """Wait until every table has rows, then measure."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    missing = set(plan.names)
    while missing:
        missing = {name for name in missing if not int(_summary(home.table(name)).get("total-records", 0))}
        if missing and time.monotonic() > deadline:
            raise FrazilError(f"nothing came to {', '.join(sorted(missing))}", fix="read the logs")
        time.sleep(1.0)
    # The first commits of a fresh JVM take longer.
    time.sleep(3 * plan.every)
    say(f"all tables have rows; measuring for {plan.seconds:.0f} s")
    began = time.time()
    with UsageSampler(pid, broker) as usage:
        time.sleep(plan.seconds)
    ended = time.time()
    readings = usage.readings
    cpu = interpolated(readings, ended, "cpu") - interpolated(readings, began, "cpu")
    memory = [each.memory for each in readings if each.memory]
    gaps: list[float] = []
    waits: list[np.ndarray] = []
    for name in plan.names:
        times, records = arrivals(home.table(name), began, ended)
        gaps += np.diff(times).tolist()
        waits += [at - stamps for at, stamps in zip(times, records, strict=True)]
    latencies = np.concatenate(waits)
    return Measured(
        float(np.median(memory)), max(memory), cpu / (ended - began), np.array(gaps), latencies, len(latencies)
    )


def _summary(table: Table) -> Mapping[str, str]:
    snapshot = table.current_snapshot()
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties


def shown(side: str, found: Measured) -> str:
    """The result as a line."""
    gaps, waits = np.percentile(found.gaps, (50, 100)), np.percentile(found.latencies, (50, 99, 100))
    return (
        f"{side}: {found.memory / 1e6:,.0f} MB in memory (most {found.most_memory / 1e6:,.0f}), "
        f"{found.cores:.2f} cores, {found.records:,} records; "
        f"a commit of a table every {gaps[0]:.1f} s in the median, {gaps[1]:.1f} s at most; "
        f"a record is visible after {waits[0]:.1f} s in the median, {waits[1]:.1f} s p99, {waits[2]:.1f} s at most"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--only", choices=["frazil", "connect"])
    args = parser.parse_args()
    plan = Plan(args.streams, args.rate, args.seconds, args.every)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frazil-bench-")))
        broker = LocalBroker(folder / "broker")
        stack.callback(broker.stop)
        address = broker.start()
        broker_pid = broker.status().pid
        assert broker_pid is not None
        for name in plan.names:
            ensure_topic(address, name)
        for side in ("frazil", "connect"):
            if args.only not in (None, side):
                continue
            home = Home(folder / side, address, plan)
            with produced(address, plan):
                if side == "frazil":
                    with frazil(home, plan, say) as pid:
                        print(shown(side, measured(pid, broker_pid, home, plan, say)), flush=True)
                else:
                    with ConnectGroup(
                        home.path, home.settings, address, plan.names, round(plan.every * 1000)
                    ) as worker:
                        print(shown(side, measured(worker.pid, broker_pid, home, plan, say)), flush=True)


if __name__ == "__main__":
    main()
