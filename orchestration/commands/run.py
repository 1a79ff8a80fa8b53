"""`frazil run`: drain a stream once, in the foreground."""

from __future__ import annotations

import logging
import os

import click
from rich.console import Console

from jobs.errors import FrazilError
from jobs.runtime.artifacts import resolve_jars
from jobs.runtime.kafka_log import KafkaLog
from jobs.runtime.lease import Lease
from jobs.runtime.open_stream import stream_folder
from jobs.runtime.preflight import preflight
from jobs.runtime.redaction import RedactingFormatter
from jobs.runtime.session import prepare_environment, start_session
from jobs.runtime.session_start import SessionStart
from jobs.runtime.translate import told_as_sentences
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.control import Control, read_control
from jobs.supervise.driver_process import find_driver
from orchestration.run_report import Meter, landed_nothing, run_facts
from orchestration.terminal import messages, print_json
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document, and nothing else there.")
@click.option("--force", is_flag=True, help="Also if an operator has stopped or paused the stream; it stays so.")
@click.pass_obj
def run(deployment: Deployment, stream: str, as_json: bool, force: bool) -> None:
    """Land everything that STREAM's topics hold now, exactly once, and end."""
    meter = Meter()
    preflight()
    spec = deployment.stream(stream)
    settings = deployment.prepared_settings()
    _refuse_beside_a_driver(spec.stream, settings)
    folder = stream_folder(settings, spec.stream)
    console = messages()
    _heed_the_operator(spec.stream, read_control(folder.root), force, console)
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    _log_warnings(settings)
    spark = SessionStart(
        lambda: start_session(settings, f"frazil {spec.stream}", output=folder.root / "spark.log"),
        lambda: prepare_environment(settings),
    )
    try:
        with told_as_sentences(settings, spec.stream):
            if _records_may_wait(spec, settings):
                spark.begin()
        # Imported here: while the JVM starts, this process imports PyIceberg.
        from jobs.runtime.drain import drain
        from orchestration.run_output import print_summary, progress_on

        with progress_on(console, meter) as watcher, told_as_sentences(settings, spec.stream):
            drained = drain(spec, settings, spark.get, on_open=watcher.opened, on_progress=watcher.progressed)
        facts = run_facts(drained, meter)
        if as_json:
            print_json(facts)
        else:
            print_summary(Console(highlight=False), facts)
        if landed_nothing(facts):
            raise FrazilError(
                f"stream {spec.stream}: not one of {facts['records']['read']:,} records landed; "
                f"{facts['records']['dead']:,} are dead letters.",
                fix=f"frazil letters {spec.stream}; correct decode.schema in streams/{spec.stream}.yaml or the "
                f"producer, then frazil replay {spec.stream}",
            )
    finally:
        spark.end()


def _records_may_wait(spec: StreamSpec, settings: Settings) -> bool:
    """Whether Spark is worth starting before the tables are asked where the stream stands; a guess, from last time."""
    folder = stream_folder(settings, spec.stream)
    Lease(folder.root, spec.stream, settings.lease_ttl.total_seconds()).refuse_if_held()
    log = KafkaLog(settings.kafka).state(spec.source)
    planned = {**log.earliest, **folder.last_planned()}
    return any(end > planned.get(partition, 0) for partition, end in log.latest.items())


def _refuse_beside_a_driver(stream: str, settings: Settings) -> None:
    driver = find_driver(stream_folder(settings, stream).root, stream, settings.lease_ttl.total_seconds())
    if driver is not None:
        raise FrazilError(
            f"stream {stream} is driven by {driver.name}, which lands what its topics hold.",
            fix=f"frazil status {stream}; or frazil stop {stream}, and run this again with --force",
        )


def _heed_the_operator(stream: str, control: Control, force: bool, console: Console) -> None:
    if control.wish == "running":
        return
    who = f" by {control.by}" if control.by else ""
    said = f"stream {stream} is {control.wish}{who}{f': {control.reason}' if control.reason else ''}."
    if not force:
        raise FrazilError(
            said,
            fix=f"frazil resume {stream}; or frazil run {stream} --force, which lands what is there now and leaves it "
            f"{control.wish}",
        )
    console.print(f"{said} Its records are landed all the same (--force), and it stays {control.wish}.", markup=False)


def _log_warnings(settings: Settings) -> None:
    """Warnings go to standard error, each on a line, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(settings, "%(message)s"))
    handler.setLevel(logging.WARNING)
    # Py4J logs, on the root logger too, the stack traces of what is told as a sentence here, or was Ctrl-C.
    handler.addFilter(lambda record: f"{os.sep}py4j{os.sep}" not in record.pathname)
    logging.getLogger().addHandler(handler)
