"""One Spark session for all commands of this process, each of which would start and end a JVM of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

import jobs.clients.spark.end
import jobs.clients.spark.session
import orchestration.cli.common.sql_session
import orchestration.cli.streams.run.command
import orchestration.cli.tables.mirror.command
import resources.services
from jobs.clients.spark.start import SessionStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STARTS = (
    jobs.clients.spark.session,
    orchestration.cli.common.sql_session,
    orchestration.cli.tables.mirror.command,
    orchestration.cli.streams.run.command,
)
_ENDS = (
    jobs.clients.spark.end,
    orchestration.cli.common.sql_session,
    orchestration.cli.tables.mirror.command,
    resources.services,
)


@contextlib.contextmanager
def one_session(spark: SparkSession) -> Iterator[None]:
    """Have every command and every run of Dagster use a session within the block, and none end it."""

    def started(*_: object, **__: object) -> SparkSession:
        return spark

    def left_running() -> None:
        """The session's fixture ends it."""

    with pytest.MonkeyPatch.context() as patch:
        for module in _STARTS:
            patch.setattr(module, "start_session", started)
        for module in _ENDS:
            patch.setattr(module, "end_spark", left_running)
        patch.setattr(orchestration.cli.streams.run.command, "SessionStart", partial(SessionStart, end=left_running))
        yield
