"""Comparison with a table of many rows: seconds, CPU seconds, memory: `python -m bench.compare [--records 1000000]`.

A local broker has so many JSON records of about 150 bytes. PyIceberg has filled a table with the same rows, as a sink
would: every thousandth row has another value, and every ten-thousandth is missing. `frazil compare` runs in a fresh
process on all of them, with coordinates in the table and without.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml
from confluent_kafka.cimpl import Producer

from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.local.broker.broker import LocalBroker
from resources.deployment import Deployment

ROOT = Path(__file__).parents[1]
TOPIC = "payments"
_APART, _MISSING = 1_000, 10_000
_ROWS_OF_APPEND = 250_000
_SCHEMA = "id string not null, qty long, amount double, payer string, note string"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="frazil-compare-") as folder,
        LocalBroker(Path(folder) / "broker") as broker,
    ):
        address, home = broker.status().address or "", Path(folder) / "home"
        produce(address, arguments.records)
        write_deployment(home, address)
        fill_tables(home, arguments.records)
        for table, what in (("sink.placed", "by coordinates"), ("sink.plain", "by key")):
            wall, cpu, megabytes, facts = timed_compare(home, table, arguments.records)
            rows = facts["rows"]
            print(
                f"{arguments.records:,} records {what}: {wall:.1f} s, {cpu:.1f} CPU-s, {megabytes:,} MB; "
                f"{rows['equal']:,} equal, {rows['different']:,} differ, {rows['only_here']:,} only here",
                flush=True,
            )


def produce(address: str, count: int) -> None:
    """Fill a topic of one partition, so that offsets are the records' numbers."""
    ensure_topic(address, TOPIC, 1)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 50})
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, json.dumps(record(number)).encode())
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise SystemExit(f"{left} records were not acknowledged")


def record(number: int) -> dict[str, object]:
    """Record of the benchmark by its number."""
    return {
        "id": f"p-{number:09}",
        "qty": number % 97,
        "amount": number / 8,
        "payer": f"payer number {number % 5_000}",
        "note": "paid in time, without a complaint or a question",
    }


def write_deployment(home: Path, address: str) -> None:
    """A deployment with the stream."""
    (home / "streams").mkdir(parents=True)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    stream = {
        "stream": TOPIC,
        "source": {"topics": [TOPIC]},
        "decode": {"value": "json", "schema": _SCHEMA},
        "table": {"name": "orders.payments", "identifier_fields": ["id"]},
    }
    (home / "streams" / f"{TOPIC}.yaml").write_text(yaml.safe_dump(stream))


def fill_tables(home: Path, count: int) -> None:
    """The sink's tables, with coordinates and without."""
    with connect_catalog(Deployment.at(home).prepared_settings()) as catalog:
        catalog.create_namespace_if_not_exists("sink")
        for first in range(0, count, _ROWS_OF_APPEND):
            rows = rows_of(first, min(count, first + _ROWS_OF_APPEND))
            for name, table in (
                ("sink.placed", rows),
                ("sink.plain", rows.drop_columns(["topic", "partition", "offset"])),
            ):
                catalog.create_table_if_not_exists(name, table.schema).append(table)


def rows_of(first: int, end: int) -> pa.Table:
    """The rows of some records, as a sink has them that lost some and changed others."""
    numbers = np.array([number for number in range(first, end) if number % _MISSING])
    texts = {name: [record(number)[name] for number in numbers.tolist()] for name in ("id", "payer", "note")}
    return pa.table(
        {
            **{name: pa.array(values, pa.string()) for name, values in texts.items()},
            "qty": pa.array(np.where(numbers % _APART == 1, -1, numbers % 97), pa.int64()),
            "amount": pa.array(numbers / 8, pa.float64()),
            "topic": pa.array([TOPIC] * len(numbers), pa.string()),
            "partition": pa.array(np.zeros(len(numbers)), pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
        }
    )


def timed_compare(home: Path, table: str, count: int) -> tuple[float, float, int, dict[str, dict[str, int]]]:
    """Wall and CPU seconds, megabytes at most, and what the comparison says."""
    words = ["compare", TOPIC, "--with", table, "--last", str(count), "--json"]
    if table == "sink.placed":
        words += ["--coordinates", "topic=topic,partition=partition,offset=offset"]
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), *words]
    began = time.perf_counter()
    with (home / "facts.json").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, cwd=home, env={**os.environ, "PYTHONPATH": str(ROOT)})
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    if process.returncode not in (0, 3):
        raise SystemExit(f"frazil compare ended with status {process.returncode}")
    facts = json.loads((home / "facts.json").read_bytes())
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024, facts


if __name__ == "__main__":
    main()
