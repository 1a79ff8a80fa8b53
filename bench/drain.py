"""Drain benchmark, how fast `frazil run` lands payments on this machine: `make figures`.

Starts a broker of its own in a temporary folder, produces the demo's payments (about 170 bytes, one in a hundred bad)
to a topic of four partitions, and runs the command that users run, several times into tables of their own. What it
prints is what the README quotes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from jobs.clients.kafka.record_producer import ensure_topic
from jobs.local.broker.broker import LocalBroker
from orchestration.cli.local.demo.payments import PaymentProducer

SPEC = Path(__file__).resolve().parents[1] / "streams" / "payments.yaml"


def main() -> None:
    """Produce once, drain several times, print each run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=250_000, help="max_records_per_batch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the facts of every run there")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="frazil-figures-") as folder,
        LocalBroker(Path(folder) / "broker") as broker,
    ):
        address = broker.status().address or ""
        produce(address, arguments.payments)
        facts = [drain(Path(folder), address, arguments.batch, run) for run in range(arguments.runs)]
    for run in facts:
        print(line(run))
    print("median: " + median_line(facts))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2))


def produce(address: str, count: int) -> None:
    """Fill the topic."""
    ensure_topic(address, "payments")
    began = time.monotonic()
    producer = PaymentProducer(address, "payments", 0, count)
    producer.start()
    while producer.is_alive():
        producer.join(1.0)
        print(f"\rproduced {producer.acknowledged:,} of {count:,}", end="", file=sys.stderr, flush=True)
    producer.check()
    print(f" in {time.monotonic() - began:.0f} s", file=sys.stderr)


def drain(folder: Path, address: str, batch: int, run: int) -> dict[str, Any]:
    """Run `frazil run` in a new deployment, and return its facts."""
    home = folder / f"run-{run}"
    (home / "streams").mkdir(parents=True)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    spec = yaml.safe_load(SPEC.read_text())
    spec["source"]["max_records_per_batch"] = batch
    (home / "streams" / "payments.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "run", "payments", "--json"]
    facts = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if not facts["adds_up"]:
        raise SystemExit(f"run {run} does not add up: {facts['records']}")
    return facts


def line(facts: dict[str, Any]) -> str:
    """A run in one line."""
    whole, steady = facts["whole"], facts["steady"]
    return (
        f"{facts['records']['read']:,} records: whole run {whole['records_per_second']:,}/s, "
        f"{whole['records_per_cpu_second'] or 0:,} per CPU-second; steady part {steady['records_per_second']:,}/s, "
        f"{steady['records_per_cpu_second'] or 0:,} per CPU-second; {facts['commit_share']:.1%} of the time in commits"
    )


def median_line(runs: list[dict[str, Any]]) -> str:
    """The medians of all runs in one line."""

    def median(part: str, figure: str) -> int:
        return round(statistics.median(run[part][figure] or 0 for run in runs))

    share = statistics.median(run["commit_share"] for run in runs)
    return (
        f"whole run {median('whole', 'records_per_second'):,}/s, "
        f"{median('whole', 'records_per_cpu_second'):,} per CPU-second; "
        f"steady part {median('steady', 'records_per_second'):,}/s, "
        f"{median('steady', 'records_per_cpu_second'):,} per CPU-second; {share:.1%} of the time in commits"
    )


if __name__ == "__main__":
    main()
