"""Growth benchmark, what grows with what: `python -m bench.growth`.

Drains made-up records, as `frazil run` does, over growing numbers of Kafka partitions, kept snapshots, table partitions
per batch and columns, and tells of each point how fast its records went through and how long its commits took. One
Spark session in this process, warmed up first, drains all points, in rounds, every other one backwards: so the JVM's
start is in no figure, and what else the machine does meets all alike. Only ratios within one run mean something.

The broker is the bench's own. Points with the same records share a topic; each has a table of its own in each round,
and five batches. `steady` leaves out the first batch, `whole` counts from the opening of the stream to the last commit.
CPU is that of this process, the JVM and the Python workers; the broker's is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from bench.growth_points import BATCHES, CURVES, Point, made_topics, opened_deployment
from jobs.base.system.cpu import tree_cpu_seconds
from jobs.base.system.signals import deferred_signals
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.driver.process.drain import drain
from orchestration.cli.streams.run.measurement import Meter, Speed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PLOT = Path(__file__).resolve().parents[1] / "docs" / "images" / "growth.png"


@dataclass(frozen=True, slots=True)
class Drain:
    """One-off run at a point.

    Attributes:
        whole: Speed from the opening of the stream to its end.
        steady: Speed without the first batch.
        bytes: Size of a record's value, on average.
        commit_seconds: Time of one batch from its pending record to its last commit: the median without the first
            batch.
        task_seconds: Time of one batch for reading, decoding and writing: the same median.
        files: Number of files of one batch: the same median.
    """

    whole: Speed
    steady: Speed
    bytes: float
    commit_seconds: float
    task_seconds: float
    files: float

    def facts(self) -> dict[str, Any]:
        """The result as JSON."""
        steady, whole = self.steady.facts(), self.whole.facts()
        rate, by_cpu = steady["records_per_second"] or 0, steady["records_per_cpu_second"]
        return {
            "records_per_second": rate,
            "records_per_cpu_second": by_cpu,
            "megabytes_per_second": round(rate * self.bytes / 1e6, 3),
            "megabytes_per_cpu_second": by_cpu and round(by_cpu * self.bytes / 1e6, 3),
            "whole_records_per_second": whole["records_per_second"],
            "whole_records_per_cpu_second": whole["records_per_cpu_second"],
            "commit_seconds": round(self.commit_seconds, 4),
            "task_seconds": round(self.task_seconds, 3),
            "files": self.files,
        }


def main() -> None:
    """Drain all points in rounds; print, write and draw what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--curves", nargs="+", choices=sorted(CURVES), default=list(CURVES), metavar="NAME", help="some"
    )
    parser.add_argument("--records", type=int, default=400_000, help="of a point with small records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the facts there")
    parser.add_argument("--plot", type=Path, help=f"also draw them there; the docs' picture is {PLOT.name}")
    arguments = parser.parse_args()
    points = [point for name in arguments.curves for point in CURVES[name].points(arguments.records)]
    with (
        tempfile.TemporaryDirectory(prefix="frazil-growth-") as folder,
        LocalBroker(Path(folder) / "broker", heap="1g") as broker,
    ):
        try:
            drains = measured(Path(folder), broker, points, arguments.rounds)
        finally:
            end_spark()
    facts = facts_of(points, drains)
    print(table(facts))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2))
    if arguments.plot:
        from bench.plots import plot_growth

        plot_growth(facts["points"], {name: curve.title for name, curve in CURVES.items()}, arguments.plot)


def measured(folder: Path, broker: LocalBroker, points: Sequence[Point], rounds: int) -> list[list[Drain]]:
    """The drains of each point, one of each round."""
    status = broker.status()
    address, broker_pid = status.address or "", status.pid
    spark = _session(folder)
    sizes = made_topics(address, points, _tell)
    drains: list[list[Drain]] = [[] for _ in points]

    def cpu() -> float | None:
        ours, brokers = tree_cpu_seconds(), tree_cpu_seconds(broker_pid)
        return None if ours is None or brokers is None else ours - brokers

    _tell("warming up\n")
    # The first drains of a JVM are slower, whatever they drain.
    for number in range(2):
        with _home(folder, f"warm-{number}") as home:
            one(home, address, points[0], spark, Meter(cpu=cpu), sizes[points[0].topic])
    for number in range(rounds):
        order = range(len(points)) if number % 2 == 0 else reversed(range(len(points)))
        for index in order:
            point = points[index]
            with _home(folder, f"{number}-{index}") as home:
                drains[index].append(one(home, address, point, spark, Meter(cpu=cpu), sizes[point.topic]))
            _tell(f"round {number + 1}, {point.curve} {point.value:,}: {line(drains[index][-1].facts())}\n")
    return drains


def one(home: Path, address: str, point: Point, spark: SparkSession, meter: Meter, size: float) -> Drain:
    """Drain a point's topic into a new table."""
    opened_deployment(home, address, point)
    settings = load_settings(None, home=home)
    spec = load_stream(home / "streams" / "growth.yaml")
    meter.samples.clear()
    meter.__post_init__()
    drained = drain(spec, settings, KafkaLog(settings.kafka), lambda: spark, on_progress=meter.sample)
    if drained.counts.landed != point.records:
        raise SystemExit(f"{point}: {drained.counts.landed:,} of {point.records:,} records landed")
    batches = drained.batches[1:]
    return Drain(
        Speed.between(meter.samples[0], meter.samples[-1]),
        Speed.between(meter.samples[1], meter.samples[-1]),
        size,
        statistics.median(batch.commit_seconds for batch in batches),
        statistics.median(batch.task_seconds for batch in batches),
        statistics.median(batch.files for batch in batches),
    )


def facts_of(points: Sequence[Point], drains: Sequence[Sequence[Drain]]) -> dict[str, Any]:
    """The median, the least and the greatest of each figure of each point."""
    found: list[dict[str, Any]] = []
    for point, each in zip(points, drains, strict=True):
        runs = [drain.facts() for drain in each]
        figures = {key: spread([run[key] for run in runs if run[key] is not None]) for key in (runs[0] if runs else {})}
        found.append({"curve": point.curve, "value": point.value, "records": point.records, **figures})
    return {"spark": pyspark.__version__, "batches": BATCHES, "rounds": len(drains[0]), "points": found}


def spread(values: Iterable[float]) -> dict[str, float] | None:
    """Minimum, median and maximum; None of nothing."""
    known = sorted(values)
    return {"min": known[0], "median": statistics.median(known), "max": known[-1]} if known else None


def relative(points: Sequence[dict[str, Any]], figure: str) -> list[float | None]:
    """The median of a figure at each point of one curve, as a multiple of that at its first point."""
    known = points[0][figure] and points[0][figure]["median"]
    return [point[figure]["median"] / known if known and point[figure] else None for point in points]


def table(facts: dict[str, Any]) -> str:
    """The facts as lines of text, a block for each curve; the multiples are of the curve's first point."""
    lines: list[str] = []
    for name in dict.fromkeys(point["curve"] for point in facts["points"]):
        points = [point for point in facts["points"] if point["curve"] == name]
        lines.append(f"{CURVES[name].title} (medians of {facts['rounds']} rounds)")
        by_cpu = relative(points, "megabytes_per_cpu_second")
        by_time = relative(points, "megabytes_per_second")
        for point, cpu, wall in zip(points, by_cpu, by_time, strict=True):
            medians = {key: value["median"] for key, value in point.items() if isinstance(value, dict)}
            lines.append(
                f"  {point['value']:>5,}: {line(medians)}; {_times(wall)} the bytes per second, "
                f"{_times(cpu)} per CPU-second"
            )
    return "\n".join(lines)


def line(figures: dict[str, Any]) -> str:
    """A point in one line."""
    return (
        f"{figures['records_per_second']:,.0f}/s, {figures.get('records_per_cpu_second') or 0:,.0f} per CPU-second, "
        f"{figures['megabytes_per_second']:.1f} MB/s; a batch: {figures['task_seconds']:.2f} s of tasks, "
        f"{1000 * figures['commit_seconds']:.0f} ms of commit, {figures['files']:,.0f} files; "
        f"whole {figures['whole_records_per_second']:,.0f}/s"
    )


def _times(multiple: float | None) -> str:
    return "–" if multiple is None else f"{multiple:.2f} ×"


def _session(folder: Path) -> SparkSession:
    began = time.monotonic()
    with deferred_signals():
        session = start_session(
            Settings.embedded(folder / "spark"),
            "frazil growth",
            conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"},
        )
    _tell(f"Spark started in {time.monotonic() - began:.0f} s\n")
    return session


@contextmanager
def _home(folder: Path, name: str) -> Iterator[Path]:
    home = folder / name
    home.mkdir()
    try:
        yield home
    finally:
        shutil.rmtree(home)


def _tell(message: str) -> None:
    print(message, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
