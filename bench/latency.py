"""Latency benchmark, from the producer to the table: `python -m bench.latency`.

A broker of its own, and for each interval each side (bench/latency_sides.py) on a topic of four partitions and with a
table of its own: frazil's driver with `trigger: {every: …}`, and the Kafka Connect Iceberg sink with the same commit
interval. After a warm-up a thousand records a second are produced, then single ones, a few seconds apart, while nothing
else comes. A record's time begins with its timestamp in Kafka, which is when the producer was given it. It ends when
the snapshot that holds it was committed by its own time, and, stricter, when a reader that polls the catalog has loaded
that snapshot. Which records a snapshot brought is read from the data files that it added.

The sides run one after the other. Warming up is left out: a fresh JVM's first commits take longer on both sides.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pyiceberg.catalog.sql import SqlCatalog

from bench.growth_records import payments
from bench.latency_reader import Reader
from bench.latency_records import Latency, Place, Sender, latencies
from bench.latency_sides import SIDES
from bench.versus.deployment import TABLE
from jobs.clients.kafka.record_producer import ensure_topic
from jobs.local.broker.broker import LocalBroker

Load: TypeAlias = Literal["steady", "singles"]

PLOT = Path(__file__).resolve().parents[1] / "docs" / "images" / "latency.png"
# The sink waits for an idle task for half a minute, twice if it comes badly.
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The records that are produced for each side and interval.

    Args:
        rate: Records a second.
        warm: Seconds of them before those that count.
        seconds: Duration of the part that counts.
        singles: Single records afterwards.
        pause: Seconds between two of them, on average; half as much at least, half as much again at most.
    """

    rate: int
    warm: float
    seconds: float
    singles: int
    pause: float


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one side at one interval.

    Attributes:
        side: The side that ran.
        every: Seconds from one commit to the next.
        committed, seen: Latencies until the commit, and until the record was seen, by load.
        commits: Number of commits with records while the steady load's records arrived.
        values: Seconds of each record until it was seen, by load.
    """

    side: str
    every: int
    committed: Mapping[Load, Latency]
    seen: Mapping[Load, Latency]
    commits: int
    values: Mapping[Load, Sequence[float]]

    def facts(self) -> dict[str, Any]:
        """The result as JSON, without the single records."""
        return {
            "side": self.side,
            "every": self.every,
            "commits": self.commits,
            "committed": {load: asdict(latency) for load, latency in self.committed.items()},
            "seen": {load: asdict(latency) for load, latency in self.seen.items()},
        }


def main() -> None:
    """Run each side at each interval, print, write and draw what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["frazil", "connect"], metavar="SIDE")
    parser.add_argument("--every", nargs="+", type=int, default=[1, 5, 10], help="seconds from one commit to the next")
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds of them that do not count")
    parser.add_argument("--seconds", type=float, default=60.0, help="of those that count")
    parser.add_argument("--singles", type=int, default=15, help="single records")
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two of them, on average")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave everything there, logs included")
    parser.add_argument("--json", type=Path, help="also write the facts there")
    parser.add_argument("--plot", type=Path, help=f"also draw them there; the docs' picture is {PLOT.name}")
    arguments = parser.parse_args()
    plan = Plan(arguments.rate, arguments.warm, arguments.seconds, arguments.singles, arguments.pause)
    runs: list[Run] = []
    with _folder(arguments.keep) as folder, LocalBroker(folder / "broker") as broker:
        for every in arguments.every:
            for side in arguments.sides:
                _tell(f"{side}, every {every} s\n")
                runs.append(measured(folder, broker.status().address or "", side, every, plan))
                print(line(runs[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([run.facts() for run in runs], indent=2))
    if arguments.plot:
        from bench.plots import plot_latency

        plot_latency(runs, arguments.plot)


def measured(folder: Path, address: str, side: str, every: int, plan: Plan) -> Run:
    """Measure one side at one interval."""
    topic = f"{side}-{every}"
    ensure_topic(address, topic)
    sender = Sender(address, topic)
    records = payments(1_000_000_000, days=1)
    with SIDES[side](folder / topic, address, topic, every) as home, _reading(home.catalog()) as reader:
        began = time.monotonic()
        with _background(lambda enough: sender.send(records, repeat(1 / plan.rate), enough)):
            reader.wait_for(1, _PATIENCE_SECONDS)
            _tell(f"  the first records after {time.monotonic() - began:.0f} s\n")
            time.sleep(plan.warm)
            counted_from = time.time()
            time.sleep(plan.seconds)
        # What came last before the end of the load waits for no other record.
        reader.wait_for(len(sender.sent), _PATIENCE_SECONDS + 2 * every)
        steady = {place: at for place, at in sender.sent.items() if at >= counted_from}
        before = frozenset(sender.sent)
        # After a commit at any time, not right after one.
        dice = random.Random(7)
        pauses = [2 * every + plan.pause, *(plan.pause * dice.uniform(0.5, 1.5) for _ in range(plan.singles - 1))]
        sender.send(records, pauses[: plan.singles])
        reader.wait_for(len(sender.sent), _PATIENCE_SECONDS + 2 * every)
        singles = {place: at for place, at in sender.sent.items() if place not in before}
        arrivals = reader.arrivals()
    loads: dict[Load, Mapping[Place, float]] = {"steady": steady, "singles": singles}
    committed: dict[Load, list[float]] = {}
    seen: dict[Load, list[float]] = {}
    for load, sent in loads.items():
        if sent:
            committed[load], seen[load] = latencies(sent, arrivals)
    commits = sum(1 for each in arrivals if any(place in steady for place in each.records))
    return Run(
        side,
        every,
        _summed_up(committed),
        _summed_up(seen),
        commits,
        seen,
    )


def line(run: Run) -> str:
    """A run in a few lines."""
    lines = [f"{run.side}, every {run.every} s, {run.commits} commits"]
    for load, seen in run.seen.items():
        committed = run.committed[load]
        lines.append(
            f"  {load}: {seen.records:,} records seen after {seen.p50:.2f} s (p50), {seen.p99:.2f} s (p99, "
            f"{seen.p99 / run.every:.2f} × the interval), {seen.max:.2f} s (max); committed after "
            f"{committed.p50:.2f} s, {committed.p99:.2f} s, {committed.max:.2f} s"
        )
    return "\n".join(lines)


def _summed_up(values: Mapping[Load, Sequence[float]]) -> dict[Load, Latency]:
    return {load: Latency.of(each) for load, each in values.items()}


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="frazil-latency-") as folder:
        yield Path(folder)


@contextmanager
def _reading(catalog: Any) -> Iterator[Reader]:
    assert isinstance(catalog, SqlCatalog)
    with Reader(catalog, TABLE) as reader:
        yield reader


@contextmanager
def _background(work: Any) -> Iterator[None]:
    """Runs `work(enough)` beside the block, and ends it with the block; what it raises is raised there."""
    enough, failed = threading.Event(), []

    def run() -> None:
        try:
            work(enough)
        except BaseException as problem:
            failed.append(problem)

    thread = threading.Thread(target=run, name="sender", daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
    if failed:
        raise failed[0]


def _tell(message: str) -> None:
    print(message, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
