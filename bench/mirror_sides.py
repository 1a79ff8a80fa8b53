"""Sides of `python -m bench.mirror`: frazil with its mirror, `foreachBatch` with MERGE; and what each of them wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import yaml
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from bench.mirror_source import BALANCES, KEYS, PROBE, PgbenchSource
from jobs.base.errors import FrazilError
from jobs.base.system.processes import start_time, stop_process
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.tables.commit.history.lineage import ancestors

Side: TypeAlias = Literal["frazil", "foreachBatch"]
SIDES: Final[tuple[Side, Side]] = ("foreachBatch", "frazil")
ROOT = Path(__file__).resolve().parents[1]
_LOOK_SECONDS = 2.0
_DEADLINE_SECONDS = 1800.0
_GRACE_SECONDS = 60.0
_BY = ("measuring mirrors", "python -m bench.mirror")


@dataclass(frozen=True, slots=True)
class Ways:
    """Settings of both sides.

    Attributes:
        every: Seconds between merges.
        land: Seconds between batches of frazil's stream.
        mode: Mode of the other side's MERGE: merge-on-read or copy-on-write.
        buckets: Number of partitions of both tables.
    """

    every: int
    land: int
    mode: str
    buckets: int


@dataclass(frozen=True)
class Mirror:
    """The mirror of one side, while its process runs.

    Attributes:
        home: The deployment's folder.
        source: The source that the side mirrors.
        pid: Id of the side's first process.
    """

    home: Path
    source: PgbenchSource
    pid: int

    def load(self) -> Table:
        """The mirror's table as it is now."""
        return connect_catalog(load_settings(None, home=self.home)).load_table(f"lake.{self.source.table}")

    def probe_at(self, table: Table, snapshot_id: int) -> int:
        """The number of the probe in a snapshot; -2 before it has the row."""
        key, balance = KEYS[self.source.table], BALANCES[self.source.table]
        scan = table.scan(f"{key} = {PROBE}", selected_fields=(balance,), snapshot_id=snapshot_id)
        found = scan.to_arrow().column(balance).to_pylist()
        return found[0] if found else -2

    def wait_for_probe(self, number: int) -> None:
        """Wait until the mirror has a probe.

        Raises:
            FrazilError: The process has ended, or it takes half an hour.
        """
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with suppress(NoSuchTableError):
                table = self.load()
                head = table.current_snapshot()
                if head is not None and self.probe_at(table, head.snapshot_id) >= number:
                    return
            if start_time(self.pid) is None:
                break
            time.sleep(_LOOK_SECONDS)
        said = "".join(path.read_text(errors="replace")[-3000:] for path in self.home.rglob("*.log"))
        raise FrazilError(f"the mirror did not get probe {number}:\n{said}", fix="read the end of its log above")

    def lags(self, since: int) -> list[float]:
        """Seconds from the commit of each probe to that of the first snapshot of main which has it.

        Args:
            since: The first probe that counts.
        """
        probes, table = self.source.probes, self.load()
        head = table.current_snapshot()
        assert head is not None
        found: list[float] = []
        seen = None
        # From the newest back: a snapshot has the probes behind what the one before it has.
        for snapshot in ancestors(table.metadata, head.snapshot_id):
            number = self.probe_at(table, snapshot.snapshot_id)
            if seen is not None:
                newer, at = seen
                found += [at - probes[each] for each in range(max(number + 1, since), newer + 1)]
            if number < since:
                break
            seen = number, snapshot.timestamp_ms / 1000
        return found

    def totals(self) -> tuple[int, int]:
        """The number of rows, and the sum of their balances."""
        balance = BALANCES[self.source.table]
        column = self.load().scan(selected_fields=(balance,)).to_arrow().column(balance)
        return len(column), int(np.sum(column.to_numpy(), dtype=np.int64))

    def deletes(self) -> list[tuple[float, int, int]]:
        """Seconds since the first snapshot, delete files and their bytes, for each snapshot of main."""
        table = self.load()
        head = table.current_snapshot()
        assert head is not None
        chain = list(ancestors(table.metadata, head.snapshot_id))[::-1]
        found: list[tuple[float, int, int]] = []
        for snapshot in chain:
            sizes = [
                entry.data_file.file_size_in_bytes
                for manifest in snapshot.manifests(table.io)
                if manifest.content == ManifestContent.DELETES
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            ]
            found.append(((snapshot.timestamp_ms - chain[0].timestamp_ms) / 1000, len(sizes), sum(sizes)))
        return found

    def written(self) -> int:
        """Bytes of all files of its tables, of which none was deleted: data, deletes, metadata."""
        warehouse = self.home / ".frazil" / "warehouse"
        return sum(path.stat().st_size for path in warehouse.rglob("*") if path.is_file())


@contextmanager
def running(side: Side, home: Path, source: PgbenchSource, ways: Ways) -> Iterator[Mirror]:
    """Start a side in a deployment of its own, and end it."""
    (home / "streams").mkdir(parents=True)
    settings = {
        "kafka": {"bootstrap_servers": source.address},
        "spark": {"master": "local[2]", "driver_memory": "1g", "conf": {"spark.ui.enabled": "false"}},
    }
    (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
    with _stock(home, source, ways) if side == "foreachBatch" else _frazil(home, source, ways) as pid:
        yield Mirror(home, source, pid)


@contextmanager
def _stock(home: Path, source: PgbenchSource, ways: Ways) -> Iterator[int]:
    arguments = [str(home), source.topic, source.table, f"{ways.every} seconds", ways.mode, str(ways.buckets)]
    with (home / "side.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.mirror_stock", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    started = start_time(process.pid)
    try:
        yield process.pid
    finally:
        if process.stdin is not None:
            process.stdin.close()
        stop_process(process.pid, started, _GRACE_SECONDS)
        process.wait()


@contextmanager
def _frazil(home: Path, source: PgbenchSource, ways: Ways) -> Iterator[int]:
    """A driver started as an operator starts it, and its mirror's process below it."""
    spec: dict[str, Any] = {
        "stream": source.table,
        "source": {"topics": [source.topic], "start": "earliest", "max_records_per_batch": 500_000},
        "decode": {
            "value": "connect_json",
            "schema": "infer",
            "key": {"format": "connect_json", "schema": f"{KEYS[source.table]} int", "into": "_change_key"},
        },
        "changes": "debezium",
        "table": {"name": f"lake.{source.table}_changes"},
        "mirrors": [{"table": f"lake.{source.table}", "every": f"{ways.every}s", "buckets": ways.buckets}],
        "trigger": {"every": f"{ways.land}s"},
    }
    (home / "streams" / f"{source.table}.yaml").write_text(yaml.safe_dump(spec))
    control = StreamControl(home, None, source.table)
    try:
        control.start(*_BY)
        launched = read_launched_process(stream_folder(load_settings(None, home=home), source.table).store)
        assert launched is not None
        yield launched.pid
    finally:
        control.stop(*_BY)


def maintain(home: Path, table: str) -> float:
    """Maintain frazil's tables once by their policy, and return the CPU-seconds.

    Raises:
        FrazilError: The maintenance failed.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "maintain", f"lake.{table}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    print(f"maintenance: {said.strip()[-300:]}", file=sys.stderr, flush=True)
    if process.returncode:
        raise FrazilError(f"maintenance failed: {said[-2000:]}", fix="read its output")
    return usage.ru_utime + usage.ru_stime
