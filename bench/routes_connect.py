"""Many tables beside the Connect sink with dynamic routing: `python -m bench.routes --connect`.

Both land one topic, each in tables of its own that it makes as their values come: frazil by `frazil run` with a route
that names tables, the sink by a real worker with `iceberg.tables.dynamic-enabled`. Records come to the sink a batch at
a time, the next once all tables have those before: it commits by interval alone, and so brings as many records with
each commit as frazil does.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import yaml

from bench.versus.connect_worker import SinkWorker
from bench.versus.deployment import BenchDeployment
from bench.versus.measurement import interpolated
from bench.versus.process_usage import UsageSampler
from bench.versus.sides import connect_commit_seconds
from bench.versus.sink_config import SinkConfig
from jobs.base.errors import FrazilError
from jobs.base.system.processes import start_time, stop_process
from jobs.clients.kafka.record_producer import RecordProducer, ensure_topic
from jobs.local.broker.broker import LocalBroker
from jobs.tables.write.table_creation import create_table_properties
from orchestration.cli.common.interrupts import Interrupts

STREAM = "events"
COLUMNS = "id string not null, type string, dest string, n long, amount double, note string"
_LOOK_SECONDS = 0.5
_STALLED_SECONDS = 240.0
_INTERRUPTED = 130
_COMMIT_MS = 60_000
"""The sink's interval: longer than it takes it to commit a batch, and then to read the next one, on a machine that has
more to do, so that no batch is cut in two."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The load that both sides land.

    Args:
        tables: Number of values, each with a table.
        zipf: Whether the values are distributed by Zipf's law, instead of evenly.
        records: Number of records of a batch.
        batches: Number of batches.
    """

    tables: int
    zipf: bool
    records: int
    batches: int

    def values(self, batch: int) -> Iterator[bytes]:
        """The records of a batch."""
        first = batch * self.records
        kinds = np.arange(self.records) % self.tables
        if self.zipf:
            weights = 1.0 / np.arange(1, self.tables + 1)
            kinds = np.random.default_rng(batch).choice(self.tables, self.records, p=weights / weights.sum())
        for at, kind in enumerate(kinds.tolist()):
            document = {"id": f"id-{first + at:012}", "type": f"t{kind:03}", "dest": f"events.t{kind:03}"}
            yield json.dumps({**document, "n": first + at, "amount": 1234.5, "note": "x"}).encode()


@dataclass(frozen=True, slots=True)
class Landing:
    """Cost of a warm run of one side: from its first complete batch in the tables to its last.

    Args:
        records: Number of records that landed in that time.
        seconds: Elapsed time.
        cpu: CPU time of the side's processes.
        whole_cpu: CPU time since the start of the process, including the creation of tables.
        commits: Number of snapshots with records in all tables.
        commit_seconds: Sum of the commits' seconds, as the side reports them; None without a report.
        memory: Peak memory of its processes in bytes.
    """

    records: int
    seconds: float
    cpu: float
    whole_cpu: float
    commits: int
    commit_seconds: float | None
    memory: int

    @property
    def rate(self) -> float:
        """Records per CPU-second."""
        return self.records / self.cpu


class Landed:
    """Counts the records of all tables of a catalog by their metadata, each read once.

    Args:
        catalog: The file of SQLite.
    """

    def __init__(self, catalog: Path) -> None:
        self._catalog: Path = catalog
        self._known: dict[str, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Records, and snapshots that brought some."""
        if not self._catalog.exists():
            return 0, 0
        with contextlib.closing(sqlite3.connect(self._catalog, timeout=30)) as opened:
            try:
                query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'events'"
                places = [place for (place,) in opened.execute(query)]
            except sqlite3.OperationalError:
                return 0, 0
        self._known = {place: self._known.get(place) or _of_metadata(place) for place in places}
        return sum(count for count, _ in self._known.values()), sum(made for _, made in self._known.values())


def _of_metadata(place: str) -> tuple[int, int]:
    metadata = json.loads(Path(place.removeprefix("file:").replace("///", "/")).read_bytes())
    summaries = {each["snapshot-id"]: each["summary"] for each in metadata.get("snapshots") or ()}
    newest = summaries.get(metadata.get("current-snapshot-id"))
    brought = sum(int(each.get("added-records", 0)) > 0 for each in summaries.values())
    return (int(newest["total-records"]) if newest else 0), brought


class RoutedDeployment(BenchDeployment):
    """Make a deployment whose tables are created as values come."""

    def create_table(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Make nothing but the namespace: both sides make the tables.

        Two tasks of the sink that make one namespace at once fail on SQLite's unique key, which is not measured here.
        """
        self.catalog().create_namespace_if_not_exists(STREAM)


def deployment(path: Path, address: str, topic: str, load: Workload) -> RoutedDeployment:
    """Write the files of a fresh deployment."""
    spec = {
        "stream": STREAM,
        "source": {"topics": [topic], "start": "earliest", "max_records_per_batch": load.records},
        "decode": {"value": "json", "schema": COLUMNS},
        "table": {"name": "own.events"},
        "route": {"by": "type", "to": "events.{value}", "limit": load.tables},
        "trigger": "available_now",
    }
    (path / "streams").mkdir(parents=True)
    (path / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    (path / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(spec))
    return RoutedDeployment(path)


class Watch:
    """Sees when each batch is whole in the tables, twice a second.

    Args:
        home: Folder of the deployment whose tables are read.
        load: The load that is landed.
        say: Reports the progress.
    """

    def __init__(self, home: BenchDeployment, load: Workload, say: Callable[[str], None]) -> None:
        self._landed: Landed = Landed(home.path / ".frazil" / "catalog.db")
        self._load: Workload = load
        self._say: Callable[[str], None] = say
        self.done: list[float] = []
        self.commits: int = 0

    def until_whole(self, batch: int, goes_on: Callable[[], bool]) -> None:
        """Wait until batches up to this one are whole.

        Raises:
            FrazilError: No records came for four minutes, or the process has ended before the batches were whole.
        """
        seen, since = -1, time.monotonic()
        while len(self.done) <= batch:
            lives = goes_on()
            count, self.commits = self._landed.count()
            now = time.time()
            while len(self.done) < count // self._load.records:
                self.done.append(now)
                self._say(f"batch {len(self.done) - 1} is whole, {self.commits:,} commits")
            if count != seen:
                seen, since = count, time.monotonic()
            if len(self.done) <= batch and (not lives or time.monotonic() - since > _STALLED_SECONDS):
                raise FrazilError(f"{count:,} records landed, and no more came", fix="read the logs")
            if len(self.done) <= batch:
                time.sleep(_LOOK_SECONDS)

    def landing(self, usage: UsageSampler, commit_seconds: float | None) -> Landing:
        """The usage of the run."""
        first, last, readings = self.done[0], self.done[-1], usage.readings
        cpu = interpolated(readings, last, "cpu") - interpolated(readings, first, "cpu")
        memory = max((each.memory or 0 for each in readings), default=0)
        records = self._load.records * (self._load.batches - 1)
        whole = interpolated(readings, last, "cpu")
        return Landing(records, last - first, cpu, whole, self.commits, commit_seconds, memory)


def by_connect(
    home: RoutedDeployment, broker: LocalBroker, topic: str, load: Workload, tasks: int, say: Callable[[str], None]
) -> Landing:
    """The sink, with the topic filled a batch at a time."""
    status = broker.status()
    assert status.address and status.pid
    properties = create_table_properties({})
    sink = SinkConfig(topic, tasks, _COMMIT_MS, route_field="dest", table_properties=properties)
    worker = SinkWorker(home, status.address, sink, say)
    worker.prepare()
    watch = Watch(home, load, say)
    try:
        worker.start()
        with UsageSampler(worker.pid, status.pid) as usage:
            for batch in range(load.batches):
                fill(status.address, topic, load, batch)
                watch.until_whole(batch, worker.lives)
        worker.check()
    finally:
        worker.stop()
    return watch.landing(usage, connect_commit_seconds(worker.log.read_text(errors="replace")))


def fill(address: str, topic: str, load: Workload, batch: int) -> None:
    """Produce a batch."""
    producer = RecordProducer(**{"bootstrap.servers": address})
    for value in load.values(batch):
        producer.produce(topic, value)
    producer.flush(60)


def by_frazil(home: RoutedDeployment, broker: LocalBroker, load: Workload, say: Callable[[str], None]) -> Landing:
    """`frazil run`, as a user types it, on the topic as it is then."""
    broker_pid = broker.status().pid
    assert broker_pid
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home.path), "run", STREAM, "--json"]
    watch = Watch(home, load, say)
    with (home.path / "run.json").open("wb") as output, (home.path / "run.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, process_group=0)
        started = start_time(process.pid)
        try:
            with UsageSampler(process.pid, broker_pid) as usage:
                watch.until_whole(load.batches - 1, lambda: process.poll() is None)
                process.wait(120)
        finally:
            stop_process(process.pid, started, 20)
            process.wait()
    facts = json.loads((home.path / "run.json").read_bytes())
    if process.returncode or not facts["adds_up"] or facts["records"]["dead"]:
        raise FrazilError(f"frazil run ended with {process.returncode}: {facts['records']}", fix="read its log")
    return watch.landing(usage, facts["commit_seconds"])


def compare(load: Workload, rounds: int, tasks: int) -> None:
    """Run both sides, and print the figures. An interrupt ends all started processes.

    Raises:
        SystemExit: The comparison was interrupted.
    """
    with Interrupts(), ExitStack() as stack:
        try:
            _compare(load, rounds, tasks, stack)
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None


def _compare(load: Workload, rounds: int, tasks: int, stack: ExitStack) -> None:
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    found: dict[str, list[Landing]] = {"Connect sink": [], "frazil": []}
    name = stack.enter_context(tempfile.TemporaryDirectory(prefix="frazil-bench-"))
    broker = LocalBroker(Path(name) / "broker")
    # Also one that is just starting.
    stack.callback(broker.stop)
    address = broker.start()
    for number in range(rounds):
        topic, folder = f"events-{number}", Path(name) / str(number)
        ensure_topic(address, topic)
        home = deployment(folder / "connect", address, topic, load)
        found["Connect sink"].append(by_connect(home, broker, topic, load, tasks, say))
        say(f"round {number}, the sink: {found['Connect sink'][-1]}")
        home = deployment(folder / "frazil", address, topic, load)
        found["frazil"].append(by_frazil(home, broker, load, say))
        say(f"round {number}, frazil: {found['frazil'][-1]}")
    for name, runs in found.items():
        _print(name, runs, load)
    ratios = [ours.rate / theirs.rate for theirs, ours in zip(found["Connect sink"], found["frazil"], strict=True)]
    print(f"records per CPU-second, frazil over the sink: {', '.join(f'{each:.2f}' for each in ratios)} ×")


def _print(name: str, runs: list[Landing], load: Workload) -> None:
    print(
        f"{name}: {' / '.join(f'{each.rate:,.0f}' for each in runs)} records per CPU-second once warm, "
        f"{median(each.cpu for each in runs) / (load.batches - 1):.1f} CPU-s and "
        f"{median(each.seconds for each in runs) / (load.batches - 1):.1f} s a batch; whole run "
        f"{median(each.whole_cpu for each in runs):.0f} CPU-s, {runs[-1].commits:,} commits, "
        f"{max(each.memory for each in runs) / 1e6:,.0f} MB"
        + ("" if runs[-1].commit_seconds is None else f", {runs[-1].commit_seconds:.0f} s in commits")
    )
