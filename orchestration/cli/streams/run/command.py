"""Command `frazil run`: a one-off run of a stream, or of all streams, in the foreground."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import preflight
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.spark.end import spark_is_over
from jobs.clients.spark.session import prepare_environment, start_session
from jobs.clients.spark.start import SessionStart
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.redaction import RedactingFormatter
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.processes.actual import read_certain
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument
from orchestration.cli.common.terminal import (
    print_columns,
    print_doubts,
    print_error,
    print_json,
    stderr_console,
)
from orchestration.cli.common.unexpected_error import is_interrupt, unexpected_error
from orchestration.cli.streams.run.measurement import (
    BatchLines,
    Meter,
    print_summary,
    run_facts,
    why_nothing_landed,
)
from resources.deployment import NO_STREAM_YET_FIX, Deployment

_FOLDER = "streams/"
Result = Literal["landed", "nothing new", "skipped", "failed"]


class NotLanded(FrazilError):
    """`frazil run` may not land the stream: a driver runs it, or an operator stopped it.

    Safe: Nothing was changed.
    Next: `frazil status S`; or `frazil run S --force`
    """


@dataclass(frozen=True, slots=True)
class Landed:
    """Result of one stream in `frazil run --all`.

    Attributes:
        name: Id of the stream; name of its file if that is invalid.
        result: Outcome of the stream's run.
        facts: Facts of the run, see `run_facts`; None if the run did not finish.
        problem: Reason why the stream was skipped or failed.
    """

    name: str
    result: Result
    facts: dict[str, Any] | None = None
    problem: FrazilError | None = None

    def row(self) -> list[str | int | None]:
        """Row of the table of results."""
        facts = self.facts
        if facts is None:
            return [self.name, self.result, *(None for _ in range(6))]
        records = facts["records"]
        counts = [records[name] for name in ("read", "landed", "dead", "tombstones")]
        return [self.name, self.result, *counts, facts["lag"], f"{facts['whole']['seconds']:,.1f}"]


def land_all(deployment: Deployment, land: Callable[[StreamSpec], dict[str, Any]], *, as_json: bool) -> None:
    """Land every stream, print each result, and exit with status 1 if one failed.

    The streams share one Spark session, which is restarted if its JVM has died. A stream with a running driver, or one
    that an operator has stopped, is skipped, which is no failure. An invalid file is a failure.

    Args:
        deployment: The deployment with the streams.
        land: Function that lands one stream and returns its facts.
        as_json: Whether to print JSON.
    """
    done = list(_each(deployment, land))
    if as_json:
        print_json({"runs": [_stream_facts(each) for each in done]})
    elif not done:
        click.echo(f"There are no streams in {deployment.streams_folder} yet.\n  Next: {NO_STREAM_YET_FIX}")
    elif any(each.name != _FOLDER for each in done):
        names = ("stream", "result", "read", "landed", "dead", "tombstones", "lag", "seconds")
        print_columns(names, [each.row() for each in done], text=("stream", "result"))
    for each in done:
        if each.problem is not None and each.result == "failed":
            print_error(each.problem)
        elif each.problem is not None:
            click.echo(f"skipped: {each.problem.message}", err=True)
    if any(each.result == "failed" for each in done):
        raise SystemExit(1)


def _each(deployment: Deployment, land: Callable[[StreamSpec], dict[str, Any]]) -> Iterator[Landed]:
    specs, errors = deployment.streams()
    for spec in specs:
        try:
            facts = land(spec)
        except NotLanded as problem:
            yield Landed(spec.stream, "skipped", problem=problem)
        except FrazilError as problem:
            yield Landed(spec.stream, "failed", problem=problem)
        except Exception as problem:
            if (interrupt := is_interrupt(problem)) is not None:
                raise interrupt from None
            yield Landed(spec.stream, "failed", problem=unexpected_error(problem, f"stream {spec.stream}", deployment))
        else:
            problem = why_nothing_landed(facts)
            result: Result = "landed" if facts["records"]["read"] else "nothing new"
            yield Landed(spec.stream, "failed" if problem else result, facts, problem)
    for error in errors:
        yield Landed(error.path.name if error.path is not None else _FOLDER, "failed", problem=error)


def _stream_facts(each: Landed) -> dict[str, Any]:
    problem = each.problem
    return {
        "stream": each.name,
        "result": each.result,
        "facts": each.facts,
        "error": problem and problem.message,
        "next": problem and problem.fix,
    }


@click.command()
@stream_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Every stream of the deployment, one after the other.")
@json_option("Print the facts as one JSON document, and nothing else there.")
@dry_run_option("Show how many records wait, and land nothing.")
@click.option("--force", is_flag=True, help="Also if an operator has stopped or paused the stream; it stays so.")
@click.pass_obj
def run(deployment: Deployment, stream: str | None, every: bool, as_json: bool, dry_run: bool, force: bool) -> None:
    """Land all present records of STREAM's topics, exactly once, and end."""
    meter = Meter()
    if (stream is not None) == every:
        raise FrazilError(
            "Name a stream, or give --all, not both." if stream else "Name a stream, or give --all.",
            fix="frazil run --all",
        )
    if dry_run:
        # Imported here: a run without --dry-run shows no plan.
        from orchestration.cli.streams.run.plan import show_run_plan

        show_run_plan(deployment, stream, as_json=as_json)
        return
    deployment.require()
    preflight()
    console = stderr_console()
    if stream is None:
        settings = deployment.prepared_settings()
        resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
        _log_warnings(settings)

        shared = SharedSpark(settings)

        def land(spec: StreamSpec) -> dict[str, Any]:
            _refuse(spec.stream, settings, force, console)
            return _land(spec, settings, console, Meter(), shared.start())

        try:
            land_all(deployment, land, as_json=as_json)
        finally:
            shared.end()
        return
    spec = deployment.stream(stream)
    settings = deployment.prepared_settings()
    _refuse(spec.stream, settings, force, console)
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    _log_warnings(settings)
    spark = _started(settings, f"frazil {spec.stream}", stream_folder(settings, spec.stream).root / "spark.log")
    try:
        facts = _land(spec, settings, console, meter, spark)
    finally:
        spark.end()
    if as_json:
        print_json(facts)
    else:
        print_summary(Console(highlight=False), facts)
    if problem := why_nothing_landed(facts):
        raise problem


def land_once(deployment: Deployment, stream: str) -> dict[str, Any]:
    """Land a stream's waiting records as a step of another command, and return the facts."""
    preflight()
    spec, settings, console = deployment.stream(stream), deployment.prepared_settings(), stderr_console()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    _log_warnings(settings)
    spark = _started(settings, f"frazil {stream}", stream_folder(settings, stream).root / "spark.log")
    try:
        return _land(spec, settings, console, Meter(), spark)
    finally:
        spark.end()


class SharedSpark:
    """Spark session that several one-off runs share, started when the first stream has records."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Settings = settings
        self._spark: SessionStart | None = None

    def start(self) -> SessionStart:
        """Session for the next stream: the shared one, or a new one if its JVM has ended."""
        if self._spark is not None and spark_is_over():
            self.end()
        if self._spark is None:
            self._spark = _started(self._settings, "frazil run --all", self._settings.state / "spark" / "run-all.log")
        return self._spark

    def end(self) -> None:
        """End the shared session."""
        if self._spark is not None:
            self._spark.end()
            self._spark = None


def _started(settings: Settings, name: str, log: Path) -> SessionStart:
    """Spark session that starts on first use, or on `begin`."""
    return SessionStart(lambda: start_session(settings, name, output=log), lambda: prepare_environment(settings))


def _land(spec: StreamSpec, settings: Settings, console: Console, meter: Meter, spark: SessionStart) -> dict[str, Any]:
    """Land a stream's waiting records, and return the facts."""
    with translate_errors(settings, spec.stream):
        stream_lease(settings, spec.stream).refuse_if_held()
        kafka = KafkaLog(settings.kafka.with_options(spec.source.options))
        if _records_may_wait(spec, settings, kafka):
            spark.begin()
    # Imported here: while the JVM starts, this process imports PyIceberg.
    from jobs.streaming.driver.process.drain import drain

    watcher = BatchLines(console, meter)
    with translate_errors(settings, spec.stream):
        drained = drain(spec, settings, kafka, spark.get, on_open=watcher.opened, on_progress=watcher.progressed)
    return run_facts(drained, meter)


def _records_may_wait(spec: StreamSpec, settings: Settings, kafka: KafkaLog) -> bool:
    """Whether to start Spark before the position is read from the tables; a guess from the last planned batch."""
    folder = stream_folder(settings, spec.stream)
    log = kafka.state(spec.source)
    planned = {**log.earliest, **folder.last_planned()}
    return any(end > planned.get(partition, 0) for partition, end in log.latest.items())


def _refuse(stream: str, settings: Settings, force: bool, console: Console) -> None:
    """Refuse a stream with a running driver, or one that an operator has stopped."""
    store = stream_folder(settings, stream).store
    driver = read_certain(store, stream).driver
    if driver is not None:
        raise NotLanded(
            f"stream {stream} is driven by {driver.name}, which lands the records of its topics.",
            fix=f"frazil status {stream}; or frazil stop {stream}, and run this again with --force",
        )
    control = read_control(store)
    if control.mode == "running":
        return
    said = control.sentence(stream)
    if not force:
        raise NotLanded(
            said,
            fix=f"frazil resume {stream}; or frazil run {stream} --force, which lands the present records and leaves "
            f"it {control.mode}",
        )
    console.print(f"{said} Its records are landed nevertheless (--force), and it stays {control.mode}.", markup=False)


def _log_warnings(settings: Settings) -> None:
    """Send warnings to standard error, each on a line, without secrets."""
    print_doubts(settings)
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(settings, "%(message)s"))
    handler.setLevel(logging.WARNING)
    # Py4J logs stack traces of errors that are reported as sentences here, or of Ctrl-C, on the root logger, too.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    logging.getLogger().addHandler(handler)
