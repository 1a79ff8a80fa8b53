"""Publishing by contract on the command line: the contract is evaluated here, with Spark where rows are many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from jobs.publish.gated import GateResult, publish_if_fit
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from orchestration.cli.terminal import current_user, stderr_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def publish_by_contract(
    spec: StreamSpec, settings: Settings, catalog: Catalog, on_progress: Callable[[str], None]
) -> GateResult:
    """Judge what the stream has landed by its contract, and publish or hold it.

    Args:
        on_progress: Told what is done.
    """
    # Imported here: a stream without a gate has no use for it.
    from jobs.contract.gate_judge import ContractJudge
    from jobs.spark.end import end_spark
    from jobs.spark.start import SessionOnDemand

    session = SessionOnDemand(lambda: _start_spark(settings), again=False)
    by = current_user()
    judge = ContractJudge(spec, settings, catalog, session.get, by=by, on_progress=on_progress)
    try:
        return publish_if_fit(spec, settings, catalog, by, judge, judge.judged_by)
    finally:
        end_spark()


def _start_spark(settings: Settings) -> SparkSession:
    from jobs.install.artifacts import resolve_jars
    from jobs.install.preflight import preflight
    from jobs.spark.session import start_session
    from jobs.system.signals import deferred_signals

    preflight()
    console = stderr_console()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    log = settings.state / "spark" / "publish.log"
    with deferred_signals():
        return start_session(settings, "frazil publish", work="sql", output=log)
