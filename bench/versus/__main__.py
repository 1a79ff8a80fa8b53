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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import stages
from bench.plots import plot_versus
from bench.versus.deployment import TABLE, BenchDeployment
from bench.versus.formats import FORMATS, PAYMENT_FORMATS, Format
from bench.versus.measurement import Run, Side
from bench.versus.report import as_json, by_format, fastest, formats_text, markdown, settings_text, trials_text
from bench.versus.row_check import Rows, check_formats, check_rows, rows_of
from bench.versus.settings import FAVOURS, settings_of
from bench.versus.sides import Contest, Say
from bench.versus.sink_config import SinkConfig
from bench.versus.topic_load import Load, loaded
from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import resolve_jars
from jobs.local.broker.broker import LocalBroker
from jobs.local.registry.registry import LocalRegistry

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
            registry = None
            if any(PAYMENT_FORMATS[format_].registry_kind for format_ in arguments.format):
                started = stack.enter_context(LocalRegistry(kept / "registry", on_progress=say))
                registry = started.start()
            loads = [
                loaded(
                    kept,
                    broker.status().address or "",
                    arguments.records,
                    arguments.count,
                    say,
                    format_=format_,
                    registry=registry,
                )
                for format_ in arguments.format
            ]
            _compare(arguments, folder, broker, loads, registry, say)
    except FrazilError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _compare(
    arguments: argparse.Namespace,
    folder: Path,
    broker: LocalBroker,
    loads: Sequence[Load],
    registry: str | None,
    say: Say,
) -> None:
    sink = SinkConfig(loads[0].topic, arguments.tasks[0], int(arguments.commit_seconds * 1000))

    def contest(where: Path, load: Load, one: SinkConfig) -> Contest:
        return Contest(where, broker, load, arguments.batch, one, say, registry)

    trials: dict[int, Run] = {}
    read = [load for load in loads if PAYMENT_FORMATS[load.format].converter]
    if len(arguments.tasks) > 1 and arguments.only != "frazil" and read:
        for tasks in arguments.tasks:
            trial = contest(folder / "trial" / str(tasks), read[0], replace(sink, tasks=tasks))
            home = trial.home("connect", 0)
            trials[tasks] = trial.connect(home, 0)
            say(f"trial with {tasks} tasks: {_line(trials[tasks])}")
            shutil.rmtree(home.path, ignore_errors=True)
        sink = replace(sink, tasks=fastest(trials))
        say(f"the sink is fastest with {sink.tasks} tasks")
    runs: list[Run] = []
    for number in range(1, arguments.rounds + 1):
        rows: dict[Format, list[Rows]] = {load.format: [] for load in loads}
        sides: list[tuple[Load, Side]] = [(load, side) for load in loads for side in _sides(arguments, load)]
        # Who goes first takes turns, as a machine may grow slower with time.
        for load, side in sides if number % 2 else reversed(sides):
            one = contest(folder / "runs", load, replace(sink, kafka_columns=side != "connect-bare"))
            home = one.home(side, number)
            runs.append(one.frazil(home, number) if side == "frazil" else one.connect(home, number, side))
            rows[load.format].append(rows_of(home.catalog().load_table(TABLE)))
            say(f"round {number}, {load.format}, {side}: {_line(runs[-1])}; {rows[load.format][-1]}")
            shutil.rmtree(home.path, ignore_errors=True)
        for load in loads:
            check_rows(load, rows[load.format])
        check_formats(rows)
    _report(arguments, contest(folder / "settings", loads[0], sink).home("frazil", 0), loads, sink, trials, runs)


def _sides(arguments: argparse.Namespace, load: Load) -> list[Side]:
    """Sides that take part with a format."""
    sides: list[Side] = ["connect", "frazil"] if arguments.only is None else [arguments.only]
    if arguments.bare_connect:
        sides.insert(0, "connect-bare")
    return [side for side in sides if side == "frazil" or PAYMENT_FORMATS[load.format].converter]


def _report(
    arguments: argparse.Namespace,
    home: BenchDeployment,
    loads: Sequence[Load],
    sink: SinkConfig,
    trials: Mapping[int, Run],
    runs: Sequence[Run],
) -> None:
    settings = settings_of(home, loads, arguments.batch, sink)
    each = by_format(runs)
    tables = [
        (f"### {PAYMENT_FORMATS[format_].title}\n\n" if len(each) > 1 else "") + markdown(some)
        for format_, some in each.items()
    ]
    parts = [*tables, formats_text(runs), trials_text(trials), settings_text(settings, FAVOURS)]
    text = "\n".join(filter(None, parts))
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
        load = loads[0]
        title = f"{load.records:,} payments of {load.value_bytes / load.records:.0f} bytes"
        plot_versus(each[load.format], title, arguments.plot)


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
    add("--format", default="json", help=f"of the payments: {', '.join(FORMATS)}, or several with commas between")
    add("--records", choices=("small", "1k"), default="small", help="payments of 170 bytes, or of 1 KB")
    add("--count", type=int, help=f"how many; default {COUNTS}")
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
    found.format = found.format.split(",")
    if unknown := [each for each in found.format if each not in FORMATS]:
        parser.error(f"--format: {unknown[0]} is none of {', '.join(FORMATS)}")
    size = found.records
    if found.quick:
        found.rounds, found.tasks, found.commit_seconds = 1, "2", QUICK_COMMIT_SECONDS
    found.count = found.count or (QUICK_COUNTS if found.quick else COUNTS)[size]
    found.batch = found.batch or (QUICK_BATCHES if found.quick else BATCHES)[size]
    found.tasks = [int(each) for each in found.tasks.split(",")]
    return found


if __name__ == "__main__":
    sys.exit(main())
