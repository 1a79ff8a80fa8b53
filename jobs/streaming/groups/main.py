"""Driver process of a group of streams: `python -m jobs.streaming.groups.main`.

The start of its first stream starts it detached; like a stream's own driver it depends on no other process. It looks
for streams whose newest launch names the group, and runs each of them separately.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.private_files import keep_private
from jobs.clients.spark.executors import application_ended
from jobs.clients.spark.log import spark_log_option
from jobs.clients.spark.session import prepare_environment, start_session
from jobs.clients.spark.start import SessionStart
from jobs.config.redaction import RedactingFormatter
from jobs.config.services.trigger import Restart
from jobs.config.settings.settings import load_settings
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.logs import (
    FILE_BYTES,
    FILES,
    cap_output,
    driver_log,
    driver_output,
    spark_log,
    start_logging,
)
from jobs.streaming.driver.process.metrics import MetricsServer
from jobs.streaming.supervision.documents.control_request import ControlReader
from jobs.streaming.supervision.documents.heartbeat import HEARTBEAT_SECONDS, SHARED_HEARTBEAT_SECONDS
from jobs.streaming.supervision.documents.scrape_target import announced
from jobs.streaming.supervision.keeper.keeper_start import KeeperStarter, keeper_policy
from jobs.streaming.supervision.launchers.driver_identity import note_itself
from jobs.streaming.supervision.processes.groups import DriverGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.001
"""Longest time that a thread keeps the interpreter: with fifty busy ones, a lease renewal waits at every step."""
_CONF = {"spark.ui.port": "0", "spark.scheduler.mode": "FAIR"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the streams of a group until its end is requested, or none is left; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jobs.streaming.groups.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the deployment's folder")
    parser.add_argument("--settings", type=Path, help="the settings file, if it is not frazil.yaml in the home folder")
    parser.add_argument("--group", required=True)
    parser.add_argument("--attempt", type=int, required=True, help="the number of the launch")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings(given.settings, home=given.home)
        keep_private(settings.state)
        group = DriverGroup.of(settings, given.group)
        folder = group.folder
        handler = start_logging(folder.root, settings)
    except FrazilError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    sys.setswitchinterval(SWITCH_SECONDS)
    control = ControlReader(folder.store, given.attempt)
    control.end_on_signals()
    again = ["--home", str(given.home), *(["--settings", str(given.settings)] if given.settings else [])]
    started_with = [*again, "--group", given.group]
    keeper = KeeperStarter(folder, group.label, given.attempt, started_with, keeper_policy(Restart()), settings)

    def on_heartbeat() -> None:
        cap_output(driver_output(folder.root))
        keeper.ensure()

    def session() -> SparkSession:
        option = spark_log_option(spark_log(folder.root), FILE_BYTES, FILES)
        return start_session(settings, f"frazil group {group.name}", java_options=option, conf=_CONF)

    def is_over(started: SparkSession) -> bool:
        if application_ended(started):
            # Imported here, for the reason below.
            from jobs.streaming.groups.carried_stream import begin_again

            begin_again(group.name, "the application")
        return False

    every = SHARED_HEARTBEAT_SECONDS if folder.store.shared else HEARTBEAT_SECONDS
    made = (folder.store, group.label, group.generation, given.attempt, driver_log(folder.root), on_heartbeat, every)
    with HeartbeatThread(*made) as heartbeat:
        keeper.ensure()
        note_itself(folder.store, heartbeat.current())
        for doubt in settings.catalog.doubts:
            log.warning("%s", doubt)
        log.info("group %s, attempt %d, generation %s", group.name, given.attempt, group.generation)
        control.superseded = lambda: heartbeat.superseded
        spark = SessionStart(session, lambda: prepare_environment(settings), is_over=is_over)
        spark.begin()
        # Imported here: while the JVM starts, this process imports PyIceberg.
        from jobs.streaming.groups.documents import process_note
        from jobs.streaming.groups.driver import GroupDriver

        carried: list[GroupDriver] = []
        try:
            with (
                MetricsServer(lambda: carried[0].beats() if carried else ()) as metrics,
                announced(settings, group.label, metrics.url),
            ):
                heartbeat.change(metrics_url=metrics.url)
                process = process_note(given.attempt, heartbeat.current(), group.name)
                carried.append(
                    GroupDriver(
                        *(group, process, control, spark.get, metrics.url),
                        on_secrets=lambda also: handler.setFormatter(RedactingFormatter(settings, also=also)),
                        on_ending=lambda: heartbeat.change(state="stopping"),
                        started_with=again,
                    )
                )
                heartbeat.follow(carried[0].work)
                heartbeat.change(state="running")
                state = carried[0].run()
            step("before_last_word")
            heartbeat.change(state=state)
        finally:
            spark.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
