"""Deleting old history of Dagster's own, as a job and, once it is turned on, each night.

Dagster deletes runs and ticks by an interface of its own, and never an event of a sensor. Those are deleted in its
tables in PostgreSQL, of which only the columns named here are relied on, for the line of Dagster that they were read
from.
"""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import sqlalchemy as sa
from pydantic import Field

from assets.failures import failure
from jobs.base.errors import FrazilError
from orchestration.jobs.control import JOB as CONTROL_JOB
from orchestration.jobs.runs import ACTION_TAG, BY_TAG, run_config

LINE = "1.13"
"""The release line of Dagster that has these tables."""
_PAGE = 5000
_RUNS = 100
# The pages share two bounds: `:after` and `:page` bound a page by its ids, which grow with time; each statement is a
# transaction of its own, short enough that nobody waits for it.
_CHECKS = sa.text("""
WITH page AS (
  SELECT id, create_timestamp AS made FROM asset_check_executions
  WHERE run_id = '' AND id > :after ORDER BY id LIMIT :page
), gone AS (
  DELETE FROM asset_check_executions WHERE id IN (SELECT id FROM page WHERE made < :before AND NOT id = ANY(:kept))
  RETURNING id
)
SELECT (SELECT count(*) FROM gone), max(id), bool_or(made < :before) FROM page
""")
# An event goes if its asset has a newer one of its kind, so that a stream that stands still keeps its last word; the
# evaluation of a check, which names no asset there, if it is not the check's newest. Partitions are told once, so they
# stay.
_EVENTS = sa.text("""
WITH page AS (
  SELECT id, timestamp AS made, dagster_event_type AS kind, asset_key, partition FROM event_logs
  WHERE run_id = '' AND id > :after ORDER BY id LIMIT :page
), gone AS (
  DELETE FROM event_logs WHERE id IN (
    SELECT id FROM page WHERE made < :before AND partition IS NULL AND CASE kind
      WHEN 'ASSET_CHECK_EVALUATION' THEN NOT id = ANY(:kept)
      ELSE EXISTS (
        SELECT FROM event_logs AS newer WHERE newer.asset_key = page.asset_key
        AND newer.dagster_event_type = page.kind AND newer.partition IS NULL AND newer.id > page.id
      ) END
  ) RETURNING id
), tags AS (
  DELETE FROM asset_event_tags WHERE event_id IN (SELECT id FROM gone)
)
SELECT (SELECT count(*) FROM gone), max(id), bool_or(made < :before) FROM page
""")
_NEWEST_CHECKS = sa.text("""
SELECT DISTINCT ON (asset_key, check_name, partition) id, evaluation_event_storage_id FROM asset_check_executions
WHERE execution_status IN ('SUCCEEDED', 'FAILED') ORDER BY asset_key, check_name, partition, id DESC
""")
JOB = "frazil_history"
OP = "delete_history"
SCHEDULE = "frazil_history_daily"
ACTION = "delete_history"
DAYS_VARIABLE = "FRAZIL_HISTORY_DAYS"
KEEP_DAYS = 30
CRON = "37 3 * * *"


@dataclass(frozen=True, slots=True)
class Deleted:
    """Counts of deleted entries.

    Attributes:
        events: Events that belong to no run.
        checks: Entries in the history of checks that belong to no run.
        runs: Finished runs, with all that they logged.
    """

    events: int
    checks: int
    runs: int


def why_not(instance: dg.DagsterInstance) -> str | None:
    """Sentence with the reason why this instance's storage keeps its history; None if history can be deleted."""
    dialect = _connected(instance, lambda connection: connection.dialect.name)
    if dialect != "postgresql":
        return f"Dagster's storage is not in PostgreSQL but in {dialect or 'memory'}, so nothing is deleted."
    return None


def delete_history(
    instance: dg.DagsterInstance, before: datetime, jobs: Sequence[str], *, page: int = _PAGE
) -> Deleted:
    """Delete history that is older than a time.

    The newest event of each asset and check stays, however old it is, and so does each partition. The deletion may be
    interrupted and repeated at any time, and Dagster may run meanwhile.

    Args:
        instance: Dagster's instance.
        before: Time before which history is deleted; with a time zone.
        jobs: Jobs whose finished runs are deleted. Such runs must have reported no asset, as their events are deleted.
        page: Number of rows that a transaction reads.

    Raises:
        FrazilError: The tables are not those of a known release line of Dagster.
    """
    _refuse_others(instance)
    naive = before.astimezone(UTC).replace(tzinfo=None)
    newest = _connected(instance, lambda connection: connection.execute(_NEWEST_CHECKS).fetchall()) or ()
    kept = [row[0] for row in newest]
    told = [row[1] for row in newest if row[1] is not None]
    # The checks first: their events are found by the entries that stay.
    checks = _pages(instance, _CHECKS, {"before": naive, "kept": kept, "page": page})
    events = _pages(instance, _EVENTS, {"before": naive, "kept": told, "page": page})
    return Deleted(events, checks, sum(_delete_runs(instance, job, before) for job in jobs))


def _pages(instance: dg.DagsterInstance, statement: sa.TextClause, values: dict[str, Any]) -> int:
    deleted, after, more = 0, 0, True
    while more:
        asked = {**values, "after": after}
        row = _connected(instance, lambda connection, asked=asked: connection.execute(statement, asked).one())
        deleted, after, more = deleted + row[0], row[1] or after, bool(row[2])
    return deleted


def _delete_runs(instance: dg.DagsterInstance, job: str, before: datetime) -> int:
    status = dg.DagsterRunStatus
    ended = [status.SUCCESS, status.FAILURE, status.CANCELED]
    old = dg.RunsFilter(job_name=job, statuses=ended, created_before=before)
    deleted = 0
    while runs := instance.get_runs(old, limit=_RUNS):
        for run in runs:
            instance.delete_run(run.run_id)
        deleted += len(runs)
    return deleted


def _refuse_others(instance: dg.DagsterInstance) -> None:
    if not dg.__version__.startswith(f"{LINE}."):
        raise FrazilError(
            f"This is Dagster {dg.__version__}, and the tables of {LINE} are those that frazil knows.",
            fix=f"pip install 'dagster=={LINE}.*'",
        )
    versions = instance.event_log_storage.alembic_version()
    if versions is not None and versions[0] != versions[1]:
        raise FrazilError(
            f"Dagster's tables are those of another release: revision {versions[0]}, and not {versions[1]}.",
            fix="stop Dagster's services, then dagster instance migrate",
        )


def _connected(instance: dg.DagsterInstance, act: Callable[[sa.Connection], Any]) -> Any:
    """Run an action on the event log's database, each statement a transaction; None if it has no database."""
    connect = getattr(instance.event_log_storage, "index_connection", None)
    if connect is None:
        return None
    with connect() as connection:
        return act(connection)


class HistoryConfig(dg.Config):
    """Configuration of the deletion: the age of history that stays."""

    keep_days: int = Field(default=KEEP_DAYS, ge=1, description="What is older goes.")


def days_to_keep() -> int:
    """Number of days that the schedule keeps, from the environment of the code server.

    Raises:
        FrazilError: The variable is no number of days.
    """
    given = os.environ.get(DAYS_VARIABLE, "")
    if not given:
        return KEEP_DAYS
    if not given.isdecimal() or int(given) < 1:
        raise FrazilError(
            f"{DAYS_VARIABLE} is a number of days, 1 at least, and not {given!r}.",
            fix=f"set {DAYS_VARIABLE}={KEEP_DAYS} where the code server is started, and restart that",
        )
    return int(given)


@dg.op(name=OP)
def delete_history_op(context: dg.OpExecutionContext, config: HistoryConfig) -> None:
    """Delete what sensors reported before these days, and the finished runs of `frazil_control`, while Dagster runs.

    What an asset or a check said last stays, and so does each partition.
    """
    reason = why_not(context.instance)
    if reason is not None:
        context.log.info(reason)
        return
    before = datetime.now(UTC) - timedelta(days=config.keep_days)
    try:
        deleted = delete_history(context.instance, before, [CONTROL_JOB])
    except FrazilError as problem:
        raise failure(problem) from None
    context.add_output_metadata(
        {
            "before": before.isoformat(timespec="seconds"),
            "events_deleted": deleted.events,
            "checks_deleted": deleted.checks,
            "runs_deleted": deleted.runs,
        }
    )


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    # What could not be deleted tonight is deleted tomorrow.
    tags={"dagster/max_retries": "0", ACTION_TAG: ACTION},
    description="Delete old history of Dagster's own in PostgreSQL: what sensors reported, and finished control "
    "runs. The newest event of each asset and check stays. Tables and states of streams are not touched.",
)
def history_job() -> None:
    """Delete old history of Dagster's."""
    delete_history_op()


def history_schedule() -> dg.ScheduleDefinition:
    """The schedule; an operator turns it on."""

    @dg.schedule(
        name=SCHEDULE,
        job=history_job,
        cron_schedule=CRON,
        execution_timezone="UTC",
        description=f"Deletes, each night, history in Dagster's PostgreSQL storage from before {DAYS_VARIABLE} days "
        f"({KEEP_DAYS}). It is off by default.",
    )
    def frazil_history(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        reason = why_not(context.instance)
        if reason is not None:
            return dg.SkipReason(reason)
        day = context.scheduled_execution_time.date().isoformat()
        config = run_config(OP, HistoryConfig(keep_days=days_to_keep()))
        return dg.RunRequest(run_key=f"history:{day}", run_config=config, tags={ACTION_TAG: ACTION, BY_TAG: "schedule"})

    return frazil_history
