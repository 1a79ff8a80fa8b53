"""Contract benchmark, what ten expectations cost: `python -m bench.contract`.

Runs `frazil check STREAM --engine …` on an increment of payments in a real Iceberg table: the data files of stamped
commits, behind a check that is recorded. Seconds are those of the command; processor and memory those of all its
processes, the JVM and Python's workers included, as /proc tells them every fifth of a second.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.catalog import Catalog

from bench.sessions import SessionUsage
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.incremental_scan.increment import increment_since
from jobs.quality.incremental_scan.validated_position import CheckSummary, record_validated
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp, property_key
from jobs.tables.write.target_writer import TargetWriter

STREAM, NAME = "payments", "bench.payments"
SCHEMA = "id string, amount decimal(12,2), status string, payer string, created_at timestamptz"
FILE_ROWS = 250_000
"""Rows of a data file, as a batch of a stream that is catching up leaves them."""
ENTRIES: list[dict[str, Any]] = [
    {"expect_column_values_to_not_be_null": {"column": "id"}},
    {"expect_column_values_to_be_unique": {"column": "id"}},
    {"expect_column_values_to_be_between": {"column": "amount", "min_value": 0, "max_value": 900}},
    {"expect_column_values_to_be_in_set": {"column": "status", "value_set": ["OPEN", "PAID"]}},
    {"expect_column_values_to_match_regex": {"column": "payer", "regex": "^payer-[0-9]+$"}},
    {"expect_column_value_lengths_to_be_between": {"column": "payer", "max_value": 20}},
    {"expect_column_max_to_be_between": {"column": "created_at", "max_value": "2027-01-01T00:00:00Z"}},
    {"expect_column_mean_to_be_between": {"column": "amount", "min_value": 1, "max_value": 1000}},
    {"expect_column_values_to_not_be_null": {"column": "payer", "row_condition": 'col("status") == "PAID"'}},
    {"expect_table_row_count_to_be_between": {"min_value": 1}},
]


def payments(count: int, first: int = 0) -> Any:
    """Rows, of which one in a thousand has an amount that is too large."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = np.arange(first, first + count)
    cents = (numbers * 7919) % 90_000 + (numbers % 1000 == 0) * 100_000
    return pa.table({
        "id": pa.array(np.char.add("id-", numbers.astype("U12"))),
        "amount": pc.multiply(pa.array(cents).cast(pa.decimal128(19, 0)), Decimal("0.01")).cast(pa.decimal128(12, 2)),
        "status": pa.array(np.where(numbers % 3 == 0, "PAID", "OPEN")),
        "payer": pa.array(np.char.add("payer-", (numbers % 5000).astype("U12"))),
        "created_at": pa.array(numbers * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us", "UTC")),
        "_kafka_topic": pa.array(np.full(count, "payments")),
        "_kafka_partition": pa.array((numbers % 4).astype("int32")),
        "_kafka_offset": pa.array(numbers),
        "_kafka_timestamp": pa.array(numbers * 1_000_000 + 1_767_225_600_000_000, pa.timestamp("us", "UTC")),
    })  # fmt: skip


def main() -> None:
    """Print seconds, seconds of processor and peak memory of each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pandas", type=int, default=100_000, help="rows; 0: not")
    parser.add_argument("--spark", type=int, default=10_000_000, help="rows; 0: not")
    arguments = parser.parse_args()
    for engine in ("pandas", "spark"):
        rows: int = getattr(arguments, engine)
        if rows:
            with tempfile.TemporaryDirectory(prefix="frazil-contract-") as folder:
                prepare(Path(folder), rows)
                run(engine, Path(folder), rows)


def prepare(home: Path, rows: int) -> None:
    """Make a deployment whose stream has landed so many rows since its last check."""
    file = home / "streams" / f"{STREAM}.yaml"
    file.parent.mkdir(parents=True)
    document = {
        "stream": STREAM,
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": SCHEMA},
        "table": {"name": NAME},
        "contract": {"expectations": ENTRIES},
    }
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    spec, settings = load_stream(file), Settings.embedded(home)
    catalog = connect_catalog(settings)
    catalog.create_namespace("bench")
    catalog.create_table(NAME, spec.table_schema, properties={"format-version": "2"})
    land(spec, catalog, 0, 1)
    table = catalog.load_table(NAME)
    position = increment_since(table.metadata, table.io, STREAM, None).validated(
        datetime.now(UTC), CheckSummary(1, len(ENTRIES), {}, "")
    )
    assert position is not None
    record_validated(catalog, NAME, STREAM, position)
    for first in range(1, rows + 1, 2_000_000):
        land(spec, catalog, first, min(first + 2_000_000, rows + 1))


def land(spec: StreamSpec, catalog: Catalog, first: int, end: int) -> None:
    """A batch of the stream."""
    table = catalog.load_table(NAME)
    files = []
    for begin in range(first, end, FILE_ROWS):
        writer = TargetWriter(table.metadata, table.io, file_prefix=uuid.uuid4().hex)
        for batch in payments(min(FILE_ROWS, end - begin), begin).to_batches():
            writer.write(batch)
        files += writer.close()
    place, count = TopicPartition("payments", 0), end - first
    parts = {place: PartitionCounts(first, Counts(count, count))}
    stamp = Stamp(STREAM, "batch", first, 1, spec.config_hash, start={place: first}, position={place: end}, parts=parts)
    text = stamp.committed_at(table.metadata.next_sequence_number(), None).to_json()
    commit_once(table, Append(files), summary={SUMMARY_KEY: text}, properties={property_key(STREAM): text})


def run(engine: str, home: Path, rows: int) -> None:
    """Check them by the command, and print what it took."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "check", STREAM]
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--engine", engine, "--dry-run", "--json"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        start_new_session=True,
    )
    usage = SessionUsage(process.pid)
    usage.follow()
    said, _ = process.communicate()
    seconds = time.monotonic() - began
    usage.stop()
    if process.returncode not in (0, 1) or not said:
        sys.exit(f"{engine}: status {process.returncode}")
    (table,) = json.loads(said)["tables"]
    found = table["expectations"]
    failed = {each["name"]: each["unexpected"] for each in found if not each["passed"]}
    problems = [each["problem"] for each in found if each["problem"]]
    assert (table["rows"], table["engine"], table["increment"]["found_by"], problems) == (rows, engine, "files", [])
    print(
        f"{engine}: {rows:,} rows, {len(found)} expectations, of which {failed} failed: {seconds:.1f} s, of which "
        f"{table['seconds']:.1f} s the check; {usage.processor:.1f} s of processor, "
        f"{usage.peak / 2**20:,.0f} MB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
