"""The control runs that a tick asks for: one per action, at most one under way per stream, each key once."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from orchestration.control_jobs import (
    JOB,
    REQUEST_TAG,
    STREAM_TAG,
    ControlConfig,
    StreamAction,
    control_run_config,
    control_tags,
)
from orchestration.reconcile.facts import Action, Decision
from orchestration.reconcile.workers import give_up_if_gone

SUPERVISOR = "supervisor"

# What the control code calls them. These leave alone what the operator wished, as `start` and `stop` would not.
CONTROL_ACTIONS = {
    Action.START: StreamAction.ensure_running,
    Action.ROLL: StreamAction.roll,
    Action.STOP: StreamAction.end,
}
# Longer than the longest action takes: after it Dagster gives up a run whose worker is gone.
_MAX_RUNTIME_SECONDS = 300
_MAX_REASON = 300

UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.MANAGED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def runs_under_way(instance: dg.DagsterInstance) -> dict[str, str]:
    """By stream, the run that acts on it now; one question for all. Runs whose process is gone are given up."""
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)) if STREAM_TAG in run.tags]
    return {run.tags[STREAM_TAG]: run.run_id for run in runs if not give_up_if_gone(instance, run)}


def newest_requests(instance: dg.DagsterInstance, streams: Iterable[str]) -> dict[str, int]:
    """By stream, the number of its newest control run, for a cursor that was lost."""
    found: dict[str, int] = {}
    for stream in streams:
        runs = instance.get_runs(dg.RunsFilter(job_name=JOB, tags={STREAM_TAG: stream}), limit=20)
        numbers = [int(text) for run in runs if (text := run.tags.get(REQUEST_TAG, "")).isdecimal()]
        found[stream] = max(numbers, default=0)
    return found


def control_run(stream: str, decision: Decision, request: int) -> dg.RunRequest:
    """The run that does what was decided.

    Args:
        request: Its number, which no earlier run of the stream has.
    """
    reason = decision.sentence if len(decision.sentence) <= _MAX_REASON else f"{decision.sentence[:_MAX_REASON]}…"
    action = CONTROL_ACTIONS[decision.action]
    config = ControlConfig(stream=stream, action=action, reason=reason, by=SUPERVISOR, request=request)
    return dg.RunRequest(
        run_key=f"{stream}:{action.value}:{request}",
        run_config=control_run_config(config),
        tags={
            **control_tags(config),
            # Before the drains that wait in the queue.
            "dagster/priority": "10",
            "dagster/max_runtime": str(_MAX_RUNTIME_SECONDS),
        },
    )
