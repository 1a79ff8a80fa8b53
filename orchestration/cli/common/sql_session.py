"""Spark for the SQL of a command: started when it is first asked for, and ended with the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.base.system.signals import deferred_signals
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import preflight
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.clients.spark.start import SessionOnDemand
from jobs.config.settings.settings import Settings
from orchestration.cli.common.terminal import stderr_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def sql_session(settings: Settings, command: str, conf: Mapping[str, str] | None = None) -> Iterator[SessionOnDemand]:
    """Spark session for a command, started on demand. A failed start is not retried.

    Args:
        settings: Settings of the deployment.
        command: Name of the command, such as `check`; the log is then `spark/check.log` in the state folder.
        conf: Settings of Spark that `spark.conf` may override.
    """

    def start() -> SparkSession:
        preflight()
        console = stderr_console()
        resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
        with deferred_signals():
            log = settings.state / "spark" / f"{command}.log"
            return start_session(settings, f"frazil {command}", work="sql", conf=conf, output=log)

    try:
        yield SessionOnDemand(start, again=False)
    finally:
        end_spark()
