"""Deleting old history of Dagster's, as a job and, once it is turned on, each night."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import os
from datetime import UTC, datetime, timedelta

import dagster as dg
from pydantic import Field

from assets.failures import failure
from jobs.errors import FrazilError
from orchestration.jobs.control import JOB as CONTROL_JOB
from orchestration.jobs.history_deletion import delete_history, why_not
from orchestration.jobs.runs import ACTION_TAG, BY_TAG, run_config

JOB = "frazil_history"
OP = "delete_history"
SCHEDULE = "frazil_history_daily"
ACTION = "delete_history"
DAYS_VARIABLE = "FRAZIL_HISTORY_DAYS"
KEEP_DAYS = 30
CRON = "37 3 * * *"


class HistoryConfig(dg.Config):
    """How much of it stays."""

    keep_days: int = Field(default=KEEP_DAYS, ge=1, description="What is older goes.")


def days_to_keep() -> int:
    """How many days the schedule keeps, as the environment of the code server says.

    Raises:
        FrazilError: It says no number of days.
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
    description="Delete old history of Dagster's own in PostgreSQL: what sensors reported, and finished control runs. "
    "What an asset or a check said last stays. Tables and states of streams are not touched.",
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
        description=f"Deletes, each night, what Dagster's storage in PostgreSQL holds from before {DAYS_VARIABLE} days "
        f"({KEEP_DAYS}). Off until somebody turns it on.",
    )
    def frazil_history(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        reason = why_not(context.instance)
        if reason is not None:
            return dg.SkipReason(reason)
        day = context.scheduled_execution_time.date().isoformat()
        config = run_config(OP, HistoryConfig(keep_days=days_to_keep()))
        return dg.RunRequest(run_key=f"history:{day}", run_config=config, tags={ACTION_TAG: ACTION, BY_TAG: "schedule"})

    return frazil_history
