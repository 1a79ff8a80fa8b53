"""Driver process of one stream, which runs for as long as it is wanted: `python -m jobs.streaming.driver.main`.

A control action starts it detached, so no web server, daemon or run has to live for it. It takes its configuration from
the state folder, where the launch put it, and obeys `control.json` between batches. Its heartbeat reports its state,
and its last heartbeat how it ended.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.private_files import keep_private
from jobs.clients.spark.log import spark_log_option
from jobs.clients.spark.session import prepare_environment, start_session
from jobs.clients.spark.start import SessionStart
from jobs.clients.state_store.lease import stream_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.secrets import secrets_in
from jobs.config.redaction import RedactingFormatter, redacted
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.last_word import run_to_last_word
from jobs.streaming.driver.process.logs import (
    FILE_BYTES,
    FILES,
    cap_output,
    driver_log,
    driver_output,
    spark_log,
    start_logging,
)
from jobs.streaming.driver.process.mirror_process import mirror_process
from jobs.streaming.supervision.documents.control_request import ControlReader
from jobs.streaming.supervision.documents.heartbeat import (
    HEARTBEAT_SECONDS,
    SHARED_HEARTBEAT_SECONDS,
    State,
)
from jobs.streaming.supervision.documents.launches import SPEC_FILE
from jobs.streaming.supervision.keeper.keeper_start import KeeperStarter, keeper_policy
from jobs.streaming.supervision.launchers.driver_identity import note_itself, take_launched_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.streaming.driver.process.runner import StreamRunner

log = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_FENCED = 3
EXIT_TERMINATED = 128 + signal.SIGTERM
_EXITS: dict[State, int] = {
    "stopped": EXIT_DONE,
    "finished": EXIT_DONE,
    "failed": EXIT_FAILED,
    "fenced": EXIT_FENCED,
    "terminated": EXIT_TERMINATED,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stream until it is asked to end, or fails; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jobs.streaming.driver.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the deployment's folder")
    parser.add_argument("--settings", type=Path, help="the settings file, if it is not frazil.yaml in the home folder")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--attempt", type=int, required=True, help="the number of the launch")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings(given.settings, home=given.home)
        keep_private(settings.state)
        folder = stream_folder(settings, given.stream)
        handler = start_logging(folder.root, settings)
        take_launched_file(folder)
        spec = load_stream(folder.root / SPEC_FILE)
        secrets = tuple(secrets_in(spec))
        handler.setFormatter(RedactingFormatter(settings, also=secrets))
    except FrazilError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return EXIT_FAILED
    log_file = driver_log(folder.root)
    control = ControlReader(folder.store, given.attempt)
    control.end_on_signals()
    again = [*_of_deployment(given), "--stream", given.stream]
    keeper = KeeperStarter(folder, spec.stream, given.attempt, again, keeper_policy(spec.restart), settings)

    mirrors = mirror_process(spec, _of_deployment(given))

    def on_heartbeat() -> None:
        cap_output(driver_output(folder.root))
        keeper.ensure()
        mirrors.ensure()

    every = SHARED_HEARTBEAT_SECONDS if folder.store.shared else HEARTBEAT_SECONDS
    with HeartbeatThread(
        *(folder.store, spec.stream, generation(spec, settings), given.attempt, log_file, on_heartbeat, every)
    ) as heartbeat:
        keeper.ensure()
        note_itself(folder.store, heartbeat.current())
        for doubt in settings.catalog.doubts:
            log.warning("%s", doubt)
        log.info("stream %s, attempt %d, generation %s", spec.stream, given.attempt, heartbeat.current().generation)
        control.superseded = lambda: heartbeat.superseded
        spark = SessionStart(lambda: _session(spec, settings), lambda: prepare_environment(settings))

        def runner() -> StreamRunner:
            if control.now() == "run" and not _is_held(spec, settings):
                spark.begin()
            # Imported here: while the JVM starts, this process imports PyIceberg and opens the tables.
            from jobs.streaming.driver.process.runner import StreamRunner

            return StreamRunner(spec, settings, heartbeat, control, spark.get)

        try:
            state, error = run_to_last_word(runner, control, lambda text: redacted(settings, text, secrets))
            step("before_last_word")
            heartbeat.change(state=state, error=error)
        finally:
            mirrors.end()
            spark.end()
    return _EXITS[heartbeat.state]


def _of_deployment(given: argparse.Namespace) -> list[str]:
    settings = ["--settings", str(given.settings)] if given.settings else []
    return ["--home", str(given.home), *settings]


def _is_held(spec: StreamSpec, settings: Settings) -> bool:
    """Whether another driver seems to hold the stream, so that starting Spark would be in vain."""
    with contextlib.suppress(FrazilError, OSError):
        lease = stream_lease(settings, spec.stream).read()
        return lease is not None and lease.held()
    return False


def _session(spec: StreamSpec, settings: Settings) -> SparkSession:
    log_option = spark_log_option(spark_log(stream_folder(settings, spec.stream).root), FILE_BYTES, FILES)
    return start_session(settings, f"frazil {spec.stream}", java_options=log_option, conf={"spark.ui.port": "0"})


if __name__ == "__main__":
    sys.exit(main())
