"""Plan of a deployment whose drivers run, in seconds and CPU seconds: `python -m bench.plan [--streams 3 300]`.

So many streams have tables with a row and a stamp in an SQLite catalog, and the documents of running drivers. This
process stands in for the drivers. `frazil plan` runs in a fresh process: first as all is, then with another key in
`frazil.yaml`, for which every driver would be replaced.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.tick import beat, launched, written
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.epochs import keep_settings
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.generation import generation, settings_of_generation
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.log_state import NO_ID
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[3, 300], help="how many streams, a deployment each")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    arguments = parser.parse_args()
    for count in arguments.streams:
        with tempfile.TemporaryDirectory(prefix="frazil-plan-") as folder, ExitStack() as held:
            deployment = written(Path(folder), count)
            # This process renews hundreds of leases beside its work.
            add_setting(deployment.home, "lease_ttl: 1h")
            settings, (specs, _) = deployment.prepared_settings(), deployment.streams()
            run_streams(deployment.home, specs, settings, held)
            for what in ("as all is", "a changed setting"):
                times: list[tuple[float, float]] = []
                for _ in range(arguments.runs):
                    for spec in specs:
                        beat(spec, settings)
                    times.append(timed_plan(deployment.home))
                wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
                print(f"{count:>4} streams, {what:<18} {wall:6.2f} s, {cpu:6.2f} CPU-s", flush=True)
                add_setting(deployment.home, "spark: {driver_memory: 3g}")


def add_setting(home: Path, line: str) -> None:
    """Add a line to the settings."""
    with (home / "frazil.yaml").open("a") as file:
        file.write(f"{line}\n")


def run_streams(home: Path, specs: Sequence[StreamSpec], settings: Settings, held: ExitStack) -> None:
    """Make tables with stamps, and the documents of running drivers."""
    with connect_catalog(settings) as catalog:
        for spec in specs:
            land(spec, catalog)
    for spec in specs:
        launched(spec, settings, (home / "streams" / f"{spec.stream}.yaml").read_text())
        keep_settings(
            stream_folder(settings, spec.stream).store,
            generation(spec, settings),
            settings_of_generation(spec, settings),
        )
        lease = stream_lease(settings, spec.stream)
        lease.acquire(0)
        held.callback(lease.release)


def land(spec: StreamSpec, catalog: Catalog) -> None:
    """Make a stream's tables, with a stamp on its own."""
    at = TopicPartition(spec.stream, 0)
    ensure_tables(spec, catalog)
    target = Target(catalog, spec.table.name, spec.stream)
    target.claim(1, lambda newest: Stamp(spec.stream, "claim", -1, 1, spec.config_hash, {at: 0}, {at: 0}))
    counts, topics = Counts(5, 5), {spec.stream: NO_ID}
    stamp = Stamp(
        *(spec.stream, "batch", 0, 1, spec.config_hash, {at: 0}, {at: 5}), counts=counts, topics=topics, generation=""
    )
    target.land(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, 5)}, position={at: 0})
    # Without a row the next start would make the table anew, which is planned otherwise.
    table = catalog.load_table(spec.table.name)
    schema = table.schema().as_arrow()
    row = {field.name: "a" if field.name == "id" else None for field in schema}
    table.append(pa.Table.from_pylist([row], schema=schema))


def timed_plan(home: Path) -> tuple[float, float]:
    """Wall and CPU seconds of `frazil plan` in a fresh process."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "plan"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or "not known" in done.stdout:
        raise SystemExit(f"frazil plan ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
