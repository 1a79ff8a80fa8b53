"""Dead letters benchmark, what failed records cost a stream: `python -m bench.dead_letters`.

Starts a broker of its own in a temporary folder and produces payments to a topic for each share of bad records, the
same bad kinds in turn in each. Then the command that users run drains each topic into tables of its own, in rounds, so
that what else the machine does meets all alike; only ratios within this run mean something. `none` is the clean topic
with tolerance none, so without dead letters. What it prints is what the README quotes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from jobs.clients.kafka.record_producer import ensure_topic
from jobs.local.broker.broker import LocalBroker
from orchestration.cli.local.demo.payments import payment

SPEC = Path(__file__).resolve().parents[1] / "streams" / "payments.yaml"
SHARES = {"clean": 0, "1 %": 100, "10 %": 10}
"""One bad record in so many."""
TOPICS = {"clean": "payments-clean", "1 %": "payments-1", "10 %": "payments-10"}


def main() -> None:
    """Produce each topic once, drain all of them in rounds, print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=110_000, help="max_records_per_batch")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {}
    by_cpu: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="frazil-letters-") as folder,
        LocalBroker(Path(folder) / "broker") as broker,
    ):
        address = broker.status().address or ""
        for share, one_in in SHARES.items():
            produce(address, TOPICS[share], arguments.payments, one_in)
        for number in range(arguments.rounds):
            for name in ("none", *SHARES):
                share = "clean" if name == "none" else name
                home = Path(folder) / f"{number}-{TOPICS[share]}-{name == 'none'}"
                tolerance = "none" if name == "none" else "data"
                facts = drain(home, address, TOPICS[share], arguments.batch, tolerance)
                rates.setdefault(name, []).append(facts["steady"]["records_per_second"])
                by_cpu.setdefault(name, []).append(facts["steady"]["records_per_cpu_second"] or 0)
                print(f"round {number + 1}, {name}: {line(facts)}", flush=True)
    for unit, figures in (("second", rates), ("CPU-second", by_cpu)):
        medians = {name: statistics.median(each) for name, each in figures.items()}
        for name in SHARES:
            print(f"{name}: {medians[name]:,.0f} per {unit}, {medians[name] / medians['clean']:.0%} of clean")
        print(f"dead letters on, with none of them: {1 - medians['clean'] / medians['none']:+.1%} less than without")


def line(facts: dict[str, Any]) -> str:
    """A run in one line."""
    counts, steady = facts["records"], facts["steady"]
    return (
        f"{counts['read']:,} records, {counts['dead']:,} dead, steady part {steady['records_per_second']:,}/s, "
        f"{steady['records_per_cpu_second'] or 0:,} per CPU-second"
    )


def values(count: int, one_in: int) -> Iterator[tuple[bytes, bytes]]:
    """Good payments; every `one_in`-th of them is one of five bad kinds in its place."""
    now = datetime.now(UTC)
    rng = random.Random(7)
    for number in range(count):
        made = payment(2 * number, now)
        while made.kind != "good" or made.value is None:
            made = payment(2 * rng.randrange(10**9) + 1, now)
        value = made.value
        if one_in and number % one_in == 0:
            value = bad(json.loads(value), number // one_in % 5)
        yield made.key or b"", value


def bad(record: dict[str, Any], kind: int) -> bytes:
    """A payment that is cut off, has a wrong type, a missing field, too many digits, or no time."""
    if kind == 1:
        record["amount"] = [1, 2]
    if kind == 2:
        del record["id"]
    if kind == 3:
        record["amount"] = 1.23456
    if kind == 4:
        record["created_at"] = "yesterday"
    value = json.dumps(record, separators=(",", ":")).encode()
    return value[: len(value) // 2] if kind == 0 else value


def produce(address: str, topic: str, count: int, one_in: int) -> None:
    """Fill a topic."""
    ensure_topic(address, topic)
    producer = Producer({"bootstrap.servers": address, "compression.type": "lz4", "linger.ms": 50, "log_level": 0})
    for key, value in values(count, one_in):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(60):
        raise SystemExit(f"{left} records were not acknowledged")


def drain(home: Path, address: str, topic: str, batch: int, tolerance: str) -> dict[str, Any]:
    """Run `frazil run` on a topic in a new deployment, and return its facts."""
    (home / "streams").mkdir(parents=True)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    spec = yaml.safe_load(SPEC.read_text())
    spec["source"] |= {"topics": [topic], "max_records_per_batch": batch}
    spec["errors"] = {"tolerance": tolerance, "dead_letters": {"table": "orders.payments_dead"}}
    (home / "streams" / "payments.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "run", "payments", "--json"]
    facts = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if not facts["adds_up"]:
        raise SystemExit(f"a run does not add up: {facts['records']}")
    return facts


if __name__ == "__main__":
    main()
