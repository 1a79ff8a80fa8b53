"""frazil beside the Apache Iceberg Kafka Connect sink, on one topic, into tables that are the same: `make bench`.

Loads a topic once, then runs both in turn, each from a fresh process into a table of its own, until every record is
committed and counted. Prints what it measured as Markdown, with versions, settings and what favours whom.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import stages
from bench.plots import plot_versus
from bench.versus.deployment import TABLE, BenchDeployment
from bench.versus.measurement import Run, Side
from bench.versus.report import as_json, fastest, markdown, settings_text, trials_text
from bench.versus.row_check import Rows, check_rows, rows_of
from bench.versus.settings import FAVOURS, settings_of
from bench.versus.sides import Contest, Say
from bench.versus.sink_config import SinkConfig
from bench.versus.topic_load import Load, loaded
from jobs.errors import FrazilError
from jobs.install.artifacts import resolve_jars
from jobs.local_broker.broker import LocalBroker

COUNTS = {"small": 10_000_000, "1k": 2_000_000}
QUICK_COUNTS = {"small": 1_000_000, "1k": 200_000}
# frazil has no interval here: it lands batch after batch. So many records keep it busy for some seconds each, which is
# less than the sink's interval; so it commits more often.
BATCHES = {"small": 2_000_000, "1k": 400_000}
QUICK_BATCHES = {"small": 250_000, "1k": 50_000}
QUICK_COMMIT_SECONDS = 3.0


def main() -> int:
    """Load, run, check, print."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    if "--stages" in sys.argv[1:]:
        sys.argv.remove("--stages")
        stages.main()
        return 0
    arguments = _arguments()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frazil-bench-")))
            kept: Path = arguments.keep.absolute() if arguments.keep else folder
            resolve_jars("connect", on_progress=say)
            broker = stack.enter_context(LocalBroker(kept / "broker", on_progress=say))
            load = loaded(kept, broker.status().address or "", arguments.records, arguments.count, say)
            _compare(arguments, folder, broker, load, say)
    except FrazilError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _compare(arguments: argparse.Namespace, folder: Path, broker: LocalBroker, load: Load, say: Say) -> None:
    sink = SinkConfig(load.topic, arguments.tasks[0], int(arguments.commit_seconds * 1000))
    trials: dict[int, Run] = {}
    if len(arguments.tasks) > 1 and arguments.only != "frazil":
        trials = _trials(arguments, folder / "trial", broker, load, sink, say)
        sink = replace(sink, tasks=fastest(trials))
        say(f"the sink is fastest with {sink.tasks} tasks")
    sides: list[Side] = ["connect", "frazil"] if arguments.only is None else [arguments.only]
    if arguments.bare_connect:
        sides.insert(0, "connect-bare")
    runs: list[Run] = []
    for number in range(1, arguments.rounds + 1):
        rows: list[Rows] = []
        # Who goes first takes turns, as a machine may grow slower with time.
        for side in sides if number % 2 else reversed(sides):
            bare = replace(sink, kafka_columns=side != "connect-bare")
            contest = Contest(folder / "runs", broker, load, arguments.batch, bare, say)
            home = contest.home(side, number)
            runs.append(contest.frazil(home, number) if side == "frazil" else contest.connect(home, number, side))
            rows.append(rows_of(home.catalog().load_table(TABLE)))
            say(f"round {number}, {side}: {_line(runs[-1])}; {rows[-1]}")
            shutil.rmtree(home.path, ignore_errors=True)
        check_rows(load, rows)
    home = BenchDeployment.of(folder / "settings", load, broker.status().address or "", batch=arguments.batch)
    settings = settings_of(home, load, arguments.batch, sink)
    text = "\n".join(filter(None, [markdown(runs), trials_text(trials), settings_text(settings, FAVOURS)]))
    print(text)
    if arguments.json:
        found = {
            "settings": settings,
            "favours": FAVOURS,
            "trials": dict(zip(trials, as_json(list(trials.values())), strict=True)),
            "runs": as_json(runs),
        }
        arguments.json.write_text(json.dumps(found, indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.plot:
        plot_versus(runs, f"{load.records:,} payments of {load.value_bytes / load.records:.0f} bytes", arguments.plot)


def _trials(
    arguments: argparse.Namespace, folder: Path, broker: LocalBroker, load: Load, sink: SinkConfig, say: Say
) -> dict[int, Run]:
    """One run of the sink with each number of tasks."""
    found: dict[int, Run] = {}
    for tasks in arguments.tasks:
        contest = Contest(folder / str(tasks), broker, load, arguments.batch, replace(sink, tasks=tasks), say)
        home = contest.home("connect", 0)
        found[tasks] = contest.connect(home, 0)
        say(f"trial with {tasks} tasks: {_line(found[tasks])}")
        shutil.rmtree(home.path, ignore_errors=True)
    return found


def _line(run: Run) -> str:
    parts = {"whole run": run.whole, "steady part": run.steady}
    return ", ".join(
        f"{name} {part.figures['records_per_second']:,.0f}/s and {part.figures['records_per_cpu_second']:,.0f} per "
        f"CPU-second"
        for name, part in parts.items()
        if part
    )


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=…", description=__doc__)
    add = parser.add_argument
    add("--records", choices=("small", "1k"), default="small", help="payments of 170 bytes, or of 1 KB")
    add("--count", type=int, help=f"how many; {COUNTS} if not said")
    add("--rounds", type=int, default=3, help="runs of each side")
    add("--tasks", default="1,2,4", help="the sink's tasks; of several the fastest is found first")
    add("--batch", type=int, help="the most records in a batch of frazil's")
    add("--commit-seconds", type=float, default=10.0, help="the sink's commit interval")
    add("--bare-connect", action="store_true", help="also run the sink without the `_kafka` columns, which favours it")
    add("--only", choices=("connect", "frazil"), help="one side alone")
    add("--quick", action="store_true", help="a million records (200,000 of 1 KB), one round, two tasks")
    add("--keep", type=Path, metavar="FOLDER", help="keep broker and topic there, or use what is there")
    add("--json", type=Path, help="write every run, with its commits and readings")
    add("--markdown", type=Path, help="write what is printed")
    add("--plot", type=Path, help="draw a picture")
    found = parser.parse_args(given)
    size = found.records
    if found.quick:
        found.rounds, found.tasks, found.commit_seconds = 1, "2", QUICK_COMMIT_SECONDS
    found.count = found.count or (QUICK_COUNTS if found.quick else COUNTS)[size]
    found.batch = found.batch or (QUICK_BATCHES if found.quick else BATCHES)[size]
    found.tasks = [int(each) for each in found.tasks.split(",")]
    return found


if __name__ == "__main__":
    sys.exit(main())
