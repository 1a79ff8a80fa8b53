"""`frazil run`: drain a stream once, in the foreground."""

from __future__ import annotations

import logging
import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jobs.errors import FrazilError
from jobs.runtime.artifacts import resolve_jars
from jobs.runtime.drain import Progress, drain
from jobs.runtime.open_stream import OpenStream, stream_folder
from jobs.runtime.preflight import preflight
from jobs.runtime.redaction import RedactingFormatter
from jobs.runtime.session import start_session
from jobs.runtime.signals import deferred_signals
from jobs.runtime.spark_end import end_spark
from jobs.runtime.translate import told_as_sentences
from jobs.spec.settings import Settings
from jobs.supervise.driver_process import find_driver
from orchestration.run_report import Meter, run_facts
from orchestration.terminal import landing_bar, messages, output_to, print_json, thousands
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document, and nothing else there.")
@click.pass_obj
def run(deployment: Deployment, stream: str, as_json: bool) -> None:
    """Land everything that STREAM's topics hold now, exactly once, and end."""
    meter = Meter()
    preflight()
    spec = deployment.stream(stream)
    settings = deployment.prepared_settings()
    _refuse_beside_a_driver(spec.stream, settings)
    spark_log = stream_folder(settings, spec.stream).root / "spark.log"
    console = messages()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    _log_warnings(settings)

    def get_spark() -> Any:
        with output_to(spark_log), deferred_signals():
            return start_session(settings, f"frazil {spec.stream}")

    watcher = _Bar(console, meter) if console.is_terminal else _Lines(console, meter)
    try:
        with watcher, told_as_sentences(settings, spec.stream):
            drained = drain(spec, settings, get_spark, on_open=watcher.opened, on_progress=watcher.progressed)
        facts = run_facts(drained, meter)
    finally:
        end_spark()
    if as_json:
        print_json(facts)
    else:
        _print_summary(Console(highlight=False), facts)


def _refuse_beside_a_driver(stream: str, settings: Settings) -> None:
    driver = find_driver(stream_folder(settings, stream).root, stream, settings.lease_ttl.total_seconds())
    if driver is not None:
        raise FrazilError(
            f"stream {stream} is driven by {driver.name}, which lands what its topics hold.",
            fix=f"frazil status {stream}; or frazil stop {stream}, and run this again",
        )


def _log_warnings(settings: Settings) -> None:
    """Warnings go to standard error, each on a line, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(settings, "%(message)s"))
    handler.setLevel(logging.WARNING)
    # Py4J logs, on the root logger too, the stack traces of what is told as a sentence here, or was Ctrl-C.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    logging.getLogger().addHandler(handler)


class _Lines:
    """One line per batch, where there is no terminal."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console: Console = console
        self._meter: Meter = meter

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def opened(self, stream: OpenStream, total: int) -> None:
        self._console.print(f"{stream.spec.stream}: {total:,} records wait; epoch {stream.epoch}", markup=False)

    def progressed(self, progress: Progress) -> None:
        self._meter.take(progress)
        batch, counts = progress.batch, progress.counts
        self._console.print(
            f"batch {batch.batch}: {counts.read:,} of {progress.total:,} records, {batch.counts.landed:,} landed, "
            f"{batch.counts.dead:,} dead, {batch.counts.tombstones:,} tombstones, {batch.seconds:.1f} s, "
            f"commit {batch.commit_seconds * 1000:.0f} ms, {self._meter.recent_rate():,.0f}/s",
            markup=False,
        )


class _Bar:
    """A progress bar, on a terminal."""

    def __init__(self, console: Console, meter: Meter) -> None:
        self._bar = landing_bar(console)
        self._meter: Meter = meter
        self._task = self._bar.add_task("opening", total=0, rate=0.0, lag=0, note="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def opened(self, stream: OpenStream, total: int) -> None:
        self._bar.update(
            self._task, description=stream.spec.stream, total=total, lag=total, note="Spark starts" if total else ""
        )

    def progressed(self, progress: Progress) -> None:
        self._meter.take(progress)
        waiting = max(0, progress.total - progress.counts.read)
        self._bar.update(
            self._task,
            completed=progress.counts.read,
            total=max(progress.total, progress.counts.read),
            rate=self._meter.recent_rate(),
            lag=max(waiting, sum(progress.batch.lag.values())),
            note=f"batch {progress.batch.batch}",
        )


def _print_summary(console: Console, facts: dict[str, Any]) -> None:
    if problem := facts["letters_problem"]:
        waiting = facts["unpublished_letters"]
        count = "Dead letters" if waiting is None else f"{waiting:,} dead letters"
        said = f"{count} are in the table and not in their topic; the next run publishes them. {problem}"
        console.print(said, style="yellow", markup=False, soft_wrap=True)
    records = facts["records"]
    if not records["read"]:
        console.print(f"{facts['stream']}: nothing new; the table has everything the topics hold.")
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name in ("read", "landed", "dead", "tombstones"):
        table.add_row(name, f"{records[name]:,}")
    for reason, count in facts["dead_letters"].items():
        table.add_row(f"  dead: {reason}", f"{count:,}")
    for path, count in facts["unknown_fields"].items():
        table.add_row(f"  unknown field {path}", f"{count:,}")
    table.add_row("batches", f"{facts['batches']:,}")
    table.add_row("seconds", f"{facts['whole']['seconds']:,.1f}")
    for part, name in (("whole", "whole run"), ("steady", "without the first batch")):
        if speed := facts[part]:
            table.add_row(f"records per second, {name}", thousands(speed["records_per_second"]))
            table.add_row(f"records per CPU-second, {name}", thousands(speed["records_per_cpu_second"]))
    if facts["commit_share"] is not None:
        table.add_row("share of time in commits", f"{facts['commit_share']:.1%}")
    table.add_row("lag", f"{facts['lag']:,}")
    console.print(f"[bold]{facts['stream']}[/]: landed in snapshot {facts['snapshot_id']}")
    console.print(table)
