"""Replay benchmark, how fast dead letters are replayed on this machine: `python -m bench.replay`.

Makes a stream's tables in a temporary folder, writes the letters of the demo's payments (about 150 bytes, of four
partitions) as a driver does, and replays all of them in this process, several times into tables of their own. No Kafka
and no JVM take part, as in any replay. What it prints is what the README quotes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import dry_run, replay
from jobs.records.formats.interface.decoder import Failure
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.write.target_writer import TargetWriter

SPEC = Path(__file__).resolve().parents[1] / "streams" / "payments.yaml"
PARTITIONS = 4
_BLOCK = 10_000


def main() -> None:
    """Write and replay several times, print each run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=10, help="commits that the dead letters were written in")
    parser.add_argument("--failing", type=float, default=0.0, help="share of dead letters that fail again")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    rates: list[tuple[float, float]] = []
    for run in range(arguments.runs):
        with tempfile.TemporaryDirectory(prefix="frazil-replay-") as folder:
            tried, done = once(Path(folder), arguments.letters, arguments.batches, arguments.failing)
        rates.append((tried.selected / tried.seconds, done.selected / done.seconds))
        print(
            f"run {run}: dry run {rates[-1][0]:,.0f} dead letters/s; replay {done.selected:,} in {done.seconds:.1f} "
            f"s: {rates[-1][1]:,.0f}/s, {done.replayed:,} landed, {done.failed:,} failed again"
        )
    dry, real = (statistics.median(each[i] for each in rates) for i in range(2))
    print(f"median: dry run {dry:,.0f} dead letters/s, replay {real:,.0f} dead letters/s")


def once(home: Path, letters: int, batches: int, failing: float) -> tuple[ReplayResult, ReplayResult]:
    """A dry run and a replay of all letters of a fresh deployment."""
    (home / "streams").mkdir()
    (home / "streams" / "payments.yaml").write_text(SPEC.read_text())
    (home / ".frazil").mkdir()
    spec, settings = load_stream(home / "streams" / "payments.yaml"), load_settings(None, home=home)
    with connect_catalog(settings) as catalog:
        ensure_tables(spec, catalog)
        size = -(-letters // batches)
        for batch, first in enumerate(range(0, letters, size)):
            write_letters(catalog, spec, batch, range(first, min(letters, first + size)), failing)
        tried = dry_run(spec, catalog, ReplayRequest())
        done = replay(spec, settings, catalog, ReplayRequest(by="bench"))
        landed = sum(task.file.record_count for task in catalog.load_table(spec.table.name).scan().plan_files())
        if landed != done.replayed or done.replayed + done.failed != letters:
            raise SystemExit(f"it does not add up: {done}, {landed} rows")
        if replay(spec, settings, catalog, ReplayRequest()).replayed:
            raise SystemExit("a second replay landed dead letters again")
    return tried, done


def write_letters(catalog: Catalog, spec: StreamSpec, batch: int, numbers: range, failing: float) -> None:
    """The letters of one batch, in one commit."""
    table = catalog.load_table(spec.dead_letter_table)
    writer = TargetWriter(table.metadata, table.io, file_prefix=f"bench-{batch}")
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for start in range(numbers.start, numbers.stop, _BLOCK):
        block = range(start, min(numbers.stop, start + _BLOCK))
        records = pa.record_batch(
            {
                "key": pa.array([f"payer-{n % 1000}".encode() for n in block]),
                "value": pa.array([value(n, failing) for n in block]),
                "topic": pa.array(["payments"] * len(block)),
                "partition": pa.array([n % PARTITIONS for n in block], pa.int32()),
                "offset": pa.array([n // PARTITIONS * 100 for n in block], pa.int64()),
                "timestamp": pa.array([began + timedelta(milliseconds=n) for n in block], pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0] * len(block), pa.int32()),
            }
        )
        failures = [Failure(i, "decode_value", "missing_field", "is required", "$.amount") for i in range(len(block))]
        writer.write(
            dead_letter_rows(
                records,
                failures,
                stream=spec.stream,
                config_hash=spec.config_hash,
                batch_id=batch,
                epoch=1,
                first_seen=began + timedelta(minutes=batch),
            )
        )
    commit_once(table, Append(writer.close()), summary={}, properties={})


def value(number: int, failing: float) -> bytes:
    """Payment of the demo by its number; a share of them is cut off."""
    document = {
        "id": f"{number:032x}",
        "amount": number % 100_000 / 100,
        "created_at": "2026-01-31T08:15:00.123456Z",
        "payer": f"payer-{number % 1000}",
        "type": "card",
    }
    text = json.dumps(document).encode()
    return text[:-8] if number % 1000 < failing * 1000 else text


if __name__ == "__main__":
    main()
