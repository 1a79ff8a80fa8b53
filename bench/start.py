"""Start benchmark, what a driver's start costs with Spark's classes prepared and without: `python -m bench.start`.

Starts a broker of its own in a temporary folder, produces a few of the demo's payments, and runs the command that users
run on them, in turn with the archive that `make setup` made (jobs/clients/spark/class_archive.py) and without it. What
it prints is what docs/architecture.md quotes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.drain import SPEC, produce
from bench.versus.process_usage import UsageSampler
from jobs.clients.spark.class_archive import VARIABLE, make_archive
from jobs.local.broker.broker import LocalBroker


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one run, from the command to its end.

    Args:
        wall: Seconds of wall time.
        cpu: CPU-seconds of the command and all processes that it started.
    """

    wall: float
    cpu: float


def main() -> None:
    """Run each way several times, one after the other in turn, and print each run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--java", default="", help="more options for the JVM, such as -XX:TieredStopAtLevel=1")
    arguments = parser.parse_args()
    if make_archive(print) is None:
        raise SystemExit("There is no archive to measure.")
    costs: dict[str, list[Cost]] = {"with the archive": [], "without": []}
    with (
        tempfile.TemporaryDirectory(prefix="frazil-start-") as folder,
        LocalBroker(Path(folder) / "broker") as broker,
    ):
        address = broker.status().address or ""
        produce(address, arguments.payments)
        for run in range(arguments.runs):
            for way, found in costs.items():
                home = Path(folder) / f"{run}-{way.replace(' ', '-')}"
                found.append(start(home, address, arguments.java, "off" if way == "without" else ""))
                print(f"{way}: {line(found[-1])}", flush=True)
    for way, found in costs.items():
        median = Cost(statistics.median(c.wall for c in found), statistics.median(c.cpu for c in found))
        print(f"median {way}: {line(median)}")


def start(home: Path, address: str, java: str, variable: str) -> Cost:
    """Run `frazil run` in a new deployment, and return its cost."""
    (home / "streams").mkdir(parents=True)
    conf = {"spark.driver.extraJavaOptions": java} if java else {}
    settings = {"kafka": {"bootstrap_servers": address}, "spark": {"conf": conf}}
    (home / "frazil.yaml").write_text(yaml.safe_dump(settings))
    (home / "streams" / "payments.yaml").write_text(SPEC.read_text())
    began = time.monotonic()
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), "run", "payments"]
    environment = {**os.environ, VARIABLE: variable}
    # Nobody waits for the Python workers that Spark ends, so what the system counts of ended children lacks them.
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as running,
        UsageSampler(running.pid, os.getpid()) as watch,
    ):
        status = running.wait()
        wall = time.monotonic() - began
    if status != 0:
        raise SystemExit(f"frazil run ended with exit status {status}")
    return Cost(wall, watch.readings[-1].cpu)


def line(cost: Cost) -> str:
    """A cost in one line."""
    return f"{cost.wall:.1f} s, {cost.cpu:.1f} s of processor"


if __name__ == "__main__":
    main()
