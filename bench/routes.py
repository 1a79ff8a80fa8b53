"""Benchmark of outputs: batches into many tables, their commits, and the memory of a task; beside a single table.

python -m bench.routes --tables 300 --records 100000 [--zipf] [--named] [--commits 8] [--one-table]
python -m bench.routes --connect [--zipf] [--batches 5] [--rounds 2] [--tasks 2]

Real tables in a catalog of SQLite, the driver's own batches, and tasks in two processes; Kafka and Spark are left out.
Records are made in the tasks before the clock starts for them, so the seconds of a batch hold what a stream does with
records that it has. With `--connect` both a whole `frazil run` and a real Connect worker land a topic of a real broker.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.routes_connect import Workload, compare
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.records import WHOLE, FetchedBlock
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.tasks import slice_plan, task_results
from jobs.streaming.driver.context import commit_pool, open_stream
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.opening import takeover
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.task.plan import TaskPlan
from jobs.streaming.task.run import TaskResult, run_split
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.target_positions import target_positions

P = TopicPartition("events", 0)
BLOCK = 10_000
COLUMNS = "id string not null, type string, n long, amount decimal(12,2), note string"


@dataclass(frozen=True)
class Load:
    """Load of records with `types` different values, distributed evenly or by Zipf's law."""

    types: int
    zipf: bool = False

    def values(self, first: int, last: int) -> list[bytes]:
        """The records of a range of offsets."""
        chance = np.random.default_rng(first)
        if self.zipf:
            weights = 1.0 / np.arange(1, self.types + 1)
            kinds = chance.choice(self.types, last - first, p=weights / weights.sum())
        else:
            kinds = np.arange(first, last) % self.types
        return [
            json.dumps(
                {"id": f"id-{first + at:012}", "type": f"t{kind:03}", "n": first + at, "amount": 1234.5, "note": "x"}
            ).encode()
            for at, kind in enumerate(kinds.tolist())
        ]

    def blocks(self, first: int, last: int) -> list[FetchedBlock]:
        """The same as a task takes them."""
        return [self._block(at, min(at + BLOCK, last)) for at in range(first, last, BLOCK)]

    def _block(self, first: int, last: int) -> FetchedBlock:
        count = last - first
        columns: dict[str, Any] = {
            "key": [None] * count,
            "value": self.values(first, last),
            "headers": [None] * count,
            "topic": [P.topic] * count,
            "partition": [P.partition] * count,
            "offset": range(first, last),
            "timestamp": [1_760_000_000_000_000] * count,
            "timestampType": [0] * count,
        }
        arrays = [
            pa.array(columns[each.name], pa.int64()).cast(each.type) for each in WHOLE if each.name == "timestamp"
        ]
        whole = pa.RecordBatch.from_arrays(
            [arrays[0] if each.name == "timestamp" else pa.array(columns[each.name], each.type) for each in WHOLE],
            schema=WHOLE,
        )
        needed = whole.select(["key", "value", "topic", "partition", "offset", "timestamp"])
        return FetchedBlock(P, needed, lambda rows: whole.take(pa.array(rows, pa.int64())))


@dataclass(frozen=True)
class Ran:
    """Measured task: its results, seconds, CPU-seconds, and the bytes by which its process grew."""

    results: list[TaskResult]
    seconds: float
    cpu_seconds: float
    grown: int


def ran(plan: TaskPlan, load: Load, first: int, last: int) -> Ran:
    """Run one split."""
    blocks = load.blocks(first, last)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    results = run_split(plan, blocks)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Ran(results, seconds, cpu, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


class Runner(BatchRunner):
    """A batch runner whose tasks run in processes of this one."""

    def __init__(self, stream: OpenStream, load: Load, tasks: ProcessPoolExecutor, splits: int) -> None:
        kafka: Any = SimpleNamespace(
            ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
        )
        super().__init__(stream, kafka)
        self._load: Load = load
        self._pool: ProcessPoolExecutor = tasks
        self._splits: int = splits
        self.last: list[Ran] = []

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any, survey: bool) -> TaskResults:
        plan = slice_plan(self._stream, batch, ranges, needs, survey=survey)
        start, end = ranges[P]
        cuts = np.linspace(start, end, self._splits + 1).astype(int).tolist()
        jobs = [self._pool.submit(ran, plan, self._load, a, b) for a, b in itertools.pairwise(cuts)]
        self.last = [each.result() for each in jobs]
        return task_results(self._stream, [row for each in self.last for row in each.results])


def spec_of(tables: int, *, route: bool, named: bool = False) -> StreamSpec:
    """The stream, with a table for each value: of the file, or made as the values come."""
    if named:
        each = []
    elif tables == 1:
        each = [{"match": ".*", "table": "events.all"}]
    else:
        each = [{"match": [f"t{number:03}"], "table": f"events.t{number:03}"} for number in range(tables)]
    return StreamSpec.model_validate(
        {
            "stream": "events",
            "source": {"topics": ["events"]},
            "decode": {"value": "json", "schema": COLUMNS},
            "table": {"name": "events.all"},
            **(
                {"route": {"by": "type", "tables": each, **({"to": "events.{value}"} if named else {})}}
                if route
                else {}
            ),
        }
    )


def opened(spec: StreamSpec, home: Path) -> OpenStream:
    """The stream as a driver opens it, Kafka left aside."""
    (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
    settings = load_settings(None, home=home)
    catalog = connect_catalog(settings)
    began = time.perf_counter()
    ensure_tables(spec, catalog)
    print(f"  {len(spec.target_names)} tables made in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    targets = {name: Target(catalog, name, spec.stream) for name in spec.target_names}
    for target in targets.values():
        target.read()
    print(f"  read in {time.perf_counter() - began:.1f} s")
    folder = stream_folder(settings, spec.stream)
    folder.root.mkdir(parents=True, exist_ok=True)
    lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
    given = (spec.stream, spec.config_hash, lease, targets, "", 1)
    stream = OpenStream(*given, spec=spec, settings=settings, folder=folder, log=LogState({}, {}, {}))
    kafka: Any = SimpleNamespace(first_start=lambda source, log: {P: 0})
    takeover.claim(stream, kafka)
    stream.positions = target_positions({name: each.newest for name, each in targets.items()}, spec.coordinator)
    stream.begin = StartingPoint({P: 0})
    return stream


def measured(spec: StreamSpec, load: Load, records: int, batches: int, splits: int) -> list[float]:
    """Land batches and print what each took; returns the seconds of processor of the tasks."""
    spent = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        # A new process for each task, so that its memory is its own.
        with ProcessPoolExecutor(2, context, max_tasks_per_child=1) as tasks:
            runner = Runner(opened(spec, Path(folder)), load, tasks, splits)
            for batch in range(batches):
                done = runner.run(None, batch, {P: (batch + 1) * records})  # type: ignore[arg-type]
                assert done.counts.landed == records, done.counts
                task = max(each.seconds for each in runner.last)
                spent.append(sum(each.cpu_seconds for each in runner.last))
                print(
                    f"  batch {batch}: tasks {task:.1f} s (processor {spent[-1]:.1f} s), commits "
                    f"{done.commit_seconds:.1f} s, files {done.files:,}, a task grew by "
                    f"{max(each.grown for each in runner.last) / 2**20:.0f} MiB"
                )
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--commits", type=int, default=commit_pool.MOST)
    parser.add_argument("--zipf", action="store_true")
    parser.add_argument("--named", action="store_true", help="the tables are made in the first batch")
    parser.add_argument("--connect", action="store_true", help="beside the Connect sink, all of both, and a broker")
    parser.add_argument("--rounds", type=int, default=2, help="with --connect: runs of each side")
    parser.add_argument("--tasks", type=int, default=2, help="with --connect: the sink's")
    parser.add_argument("--one-table", action="store_true", help="routed by a constant, and unrouted, by turns")
    args = parser.parse_args()
    if args.connect:
        compare(Workload(args.tables, args.zipf, args.records, args.batches), args.rounds, args.tasks)
        return
    if args.one_table:
        sides: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * args.batches):
            route = number % 2 == 0
            print("routed to one table" if route else "unrouted")
            sides[route] += measured(spec_of(1, route=route), Load(1), args.records, 2, args.splits)[1:]
        routed, plain = (statistics.median(sides[each]) for each in (True, False))
        print(f"processor of the tasks: routed {routed:.2f} s, unrouted {plain:.2f} s, {routed / plain:.3f} times")
        return
    print(f"{args.tables} tables, {args.records:,} records a batch, {'by Zipf' if args.zipf else 'evenly'}")
    open_stream.most_commits = lambda catalog: args.commits
    spec = spec_of(args.tables, route=True, named=args.named)
    measured(spec, Load(args.tables, args.zipf), args.records, args.batches, args.splits)


if __name__ == "__main__":
    main()
