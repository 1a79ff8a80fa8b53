"""Runs of each side, from a fresh process to the last commit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from bench.versus.connect_worker import SinkWorker
from bench.versus.deployment import STREAM, TABLE, BenchDeployment
from bench.versus.formats import converter_properties
from bench.versus.measurement import Commit, Run, Side
from bench.versus.process_usage import UsageSampler
from bench.versus.sink_config import SinkConfig
from bench.versus.topic_load import Load
from jobs.base.errors import FrazilError
from jobs.base.system.processes import start_time, stop_process
from jobs.local.broker.broker import LocalBroker

Say = Callable[[str], None]

_LOOK_SECONDS = 1.0
_STALLED_SECONDS = 180.0
_GRACE_SECONDS = 20.0
_COMMIT_SECONDS = re.compile(r"CommitReport\{.*?totalDuration=PT(?:(\d+)M)?([\d.]+)S")


class Contest:
    """A loaded topic that both sides land, each time in a fresh deployment.

    Args:
        folder: Folder of the deployments.
        broker: The running broker.
        load: Load of the topic.
        batch: Largest number of records in frazil's batches.
        sink: Configuration of the Connect sink; topic and converter follow from the load.
        say: Callback for the progress.
        registry: The URL of the schema registry, if the load needs it.
    """

    def __init__(
        self,
        folder: Path,
        broker: LocalBroker,
        load: Load,
        batch: int,
        sink: SinkConfig,
        say: Say,
        registry: str | None = None,
    ) -> None:
        status = broker.status()
        if status.address is None or status.pid is None:
            raise FrazilError("The local broker of the benchmark is not running.", fix="run this again")
        self._folder: Path = folder
        self._address: str = status.address
        self._broker_pid: int = status.pid
        self._load: Load = load
        self._batch: int = batch
        self._sink: SinkConfig = replace(sink, topic=load.topic, converter=converter_properties(load.format, registry))
        self._registry: str | None = registry
        self._say: Say = say

    def home(self, side: Side, number: int) -> BenchDeployment:
        """A fresh deployment for a side's run in a round."""
        return BenchDeployment.of(
            self._folder / f"{self._load.format}-{side}-{number}",
            self._load,
            self._address,
            batch=self._batch,
            kafka_columns=side != "connect-bare",
            registry=self._registry,
        )

    def frazil(self, home: BenchDeployment, number: int) -> Run:
        """Measure `frazil run`, as a user types it.

        Raises:
            FrazilError: The run fails, or records are missing in the end.
        """
        command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home.path), "run", STREAM, "--json"]
        with (home.path / "run.json").open("wb") as output, (home.path / "run.log").open("wb") as log:
            began = time.time()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, process_group=0)
            started = start_time(process.pid)
            try:
                with UsageSampler(process.pid, self._broker_pid) as watch:
                    self._wait(home, "frazil", number, lambda _: process.poll() is None)
                    process.wait()
            finally:
                stop_process(process.pid, started, _GRACE_SECONDS)
                process.wait()
        if process.returncode:
            tail = (home.path / "run.log").read_text(errors="replace")[-2000:]
            raise FrazilError(f"frazil run ended with status {process.returncode}:\n{tail}", fix="read the log above")
        facts = json.loads((home.path / "run.json").read_bytes())
        if not facts["adds_up"] or facts["records"]["dead"]:
            raise FrazilError(f"frazil's counts are not those of good records: {facts['records']}", fix="look for why")
        told = {key: facts[key] for key in ("batches", "refusals", "query_seconds", "steady", "whole")}
        return self._run("frazil", number, home, began, watch, facts["commit_seconds"], told)

    def connect(self, home: BenchDeployment, number: int, side: Side = "connect") -> Run:
        """Measure a Connect worker with the Iceberg sink, from its JVM's start until the table has all records.

        Raises:
            FrazilError: The worker fails, or commits nothing for three minutes.
        """
        worker = SinkWorker(home, self._address, self._sink, self._say)
        worker.prepare()
        began = time.time()
        try:
            worker.start()
            with UsageSampler(worker.pid, self._broker_pid) as watch:
                self._wait(home, side, number, lambda seen: worker.lives() and seen < self._load.records)
            worker.check()
        finally:
            worker.stop()
        log = worker.log.read_text(errors="replace")
        facts = {"tasks": self._sink.tasks, "commit_rounds": log.count("completed commit ")}
        return self._run(side, number, home, began, watch, connect_commit_seconds(log), facts)

    def _wait(self, home: BenchDeployment, side: Side, number: int, goes_on: Callable[[int], bool]) -> None:
        """Look at the table once a second, for both sides, for as long as it goes on with so many records committed."""
        catalog, seen, since, began = home.catalog(), 0, time.monotonic(), time.monotonic()
        while goes_on(seen):
            time.sleep(_LOOK_SECONDS)
            if (found := committed(table_in(catalog))) != seen:
                seen, since = found, time.monotonic()
                self._say(f"round {number}, {side}: {seen:,} records committed after {since - began:.0f} s")
            if time.monotonic() - since > _STALLED_SECONDS:
                break

    def _run(
        self,
        side: Side,
        number: int,
        home: BenchDeployment,
        began: float,
        watch: UsageSampler,
        commit_seconds: float | None,
        facts: dict[str, Any],
    ) -> Run:
        commits = commits_of(table_in(home.catalog()))
        if (landed := sum(commit.records for commit in commits)) != self._load.records:
            raise FrazilError(
                f"{side} committed {landed:,} of {self._load.records:,} records.", fix=f"look in {home.path}"
            )
        facts |= {"folder_files": _files_in(home.path / ".frazil" / "warehouse")}
        readings = tuple(watch.readings)
        return Run(
            side, number, began, commits, readings, self._load.value_bytes, commit_seconds, facts, self._load.format
        )


def table_in(catalog: Catalog) -> Table | None:
    """The stream's table as it is now; None before it is made."""
    try:
        return catalog.load_table(TABLE)
    except NoSuchTableError:
        return None


def committed(table: Table | None) -> int:
    """Number of the table's records by its newest snapshot."""
    snapshot = table.current_snapshot() if table else None
    return int((snapshot.summary or {}).get("total-records") or 0) if snapshot else 0


def commits_of(table: Table | None) -> tuple[Commit, ...]:
    """The table's snapshots that added records, the oldest first."""
    found: list[Commit] = []
    for snapshot in sorted(table.snapshots() if table else (), key=lambda each: each.sequence_number or 0):
        summary = snapshot.summary
        if summary and (records := int(summary.get("added-records") or 0)):
            files, file_bytes = (int(summary.get(key) or 0) for key in ("added-data-files", "added-files-size"))
            found.append(Commit(snapshot.timestamp_ms / 1000, records, files, file_bytes))
    return tuple(found)


def connect_commit_seconds(log: str) -> float | None:
    """Time in commits, from Iceberg's own reports in the worker's log; None without a report."""
    found: Sequence[tuple[str, str]] = _COMMIT_SECONDS.findall(log)
    return sum(60 * int(minutes or 0) + float(seconds) for minutes, seconds in found) if found else None


def _files_in(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))
