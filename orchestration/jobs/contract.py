"""Checking the contracts of all streams: the job, and the schedules of streams whose file names times."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from jobs.config.stream.models import StreamSpec
from orchestration.jobs.runs import BY_TAG, REASON_TAG

JOB = "frazil_check"
CHECKED_TAG = "frazil/checked"
"""The stream whose contract a run checks. It acts on no stream, so the supervisor looks at another tag."""

Keys = Mapping[str, Sequence[dg.AssetCheckKey]]


# Dagster does not export the type of what `define_asset_job` returns.
def contract_job(keys: Keys) -> Any | None:
    """Job that checks contracts in one run; a run for one stream selects its checks. None without contracts."""
    every = [key for of_stream in keys.values() for key in of_stream]
    if not every:
        return None
    return dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.checks(*every),
        description="Check new rows in the tables against the contracts of all streams.",
    )


def check_run(stream: str, keys: Sequence[dg.AssetCheckKey], run_key: str, reason: str, by: str) -> dg.RunRequest:
    """The request for a run that checks all of a stream's contract.

    Args:
        run_key: Key that no earlier run has.
    """
    return dg.RunRequest(
        run_key=run_key,
        job_name=JOB,
        asset_check_keys=list(keys),
        tags={CHECKED_TAG: stream, REASON_TAG: reason[:200], BY_TAG: by},
    )


def contract_schedules(job: Any | None, specs: Sequence[StreamSpec], keys: Keys) -> list[dg.ScheduleDefinition]:
    """The schedules of streams whose contract is checked at fixed times; they run unless somebody turns them off."""
    if job is None:
        return []
    return [
        _schedule(job, spec, cron, keys[spec.stream])
        for spec in specs
        if keys.get(spec.stream) and (cron := _cron(spec)) is not None
    ]


def _cron(spec: StreamSpec) -> str | None:
    check = spec.contract.check if spec.contract is not None else None
    return check.schedule if check is not None else None


def _schedule(job: Any, spec: StreamSpec, cron: str, keys: Sequence[dg.AssetCheckKey]) -> dg.ScheduleDefinition:
    name = f"frazil_check_{spec.stream.replace('-', '__')}"

    def requested(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        at = context.scheduled_execution_time.isoformat()
        return check_run(spec.stream, keys, f"{spec.stream}:check:{at}", f"scheduled at {cron}", name)

    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        execution_fn=requested,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Checks the contract of stream {spec.stream} at the times that its file names (UTC).",
    )
