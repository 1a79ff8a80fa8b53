"""Run requests of the reconcile sensor: one per action, at most one under way per stream, each run key once."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from orchestration.jobs.control import (
    JOB,
    MAX_RUNTIME_SECONDS,
    ControlConfig,
    StreamAction,
    control_run_config,
    control_tags,
)
from orchestration.jobs.replay import JOB as REPLAY_JOB
from orchestration.jobs.runs import BY_TAG, MAX_RUNTIME_TAG, REQUEST_TAG, STREAM_TAG, runs_under_way
from orchestration.reconcile.decision import Action, Decision

SUPERVISOR = "supervisor"

# What the control code calls them. These leave alone what the operator wished, as `start` and `stop` would not.
CONTROL_ACTIONS = {
    Action.START: StreamAction.ensure_running,
    Action.ROLL: StreamAction.roll,
    Action.STOP: StreamAction.end,
}
_MAX_REASON = 300


def acting_runs(instance: dg.DagsterInstance) -> dict[str, str]:
    """By stream, the run that acts on it now; one question for all. Runs whose process is gone are given up.

    A replay does not act on the stream, which may be started and ended meanwhile.
    """
    runs = [run for run in runs_under_way(instance) if STREAM_TAG in run.tags]
    return {run.tags[STREAM_TAG]: run.run_id for run in runs if run.job_name != REPLAY_JOB}


def newest_requests(instance: dg.DagsterInstance, streams: Iterable[str]) -> dict[str, int]:
    """By stream, the number of the newest run that the supervisor asked for, for a cursor that was lost.

    Runs that people asked for have no number, however many of them are newer.
    """
    found: dict[str, int] = {}
    for stream in streams:
        asked_for = {STREAM_TAG: stream, BY_TAG: SUPERVISOR}
        runs = instance.get_runs(dg.RunsFilter(job_name=JOB, tags=asked_for), limit=20)
        numbers = [int(text) for run in runs if (text := run.tags.get(REQUEST_TAG, "")).isdecimal()]
        found[stream] = max(numbers, default=0)
    return found


def control_run(stream: str, decision: Decision, request: int) -> dg.RunRequest:
    """The request for the run that does what was decided.

    Args:
        request: Its number, which no earlier run of the stream has.
    """
    reason = decision.sentence if len(decision.sentence) <= _MAX_REASON else f"{decision.sentence[:_MAX_REASON]}…"
    action = StreamAction.let_go if decision.ends else CONTROL_ACTIONS[decision.action]
    config = ControlConfig(stream=stream, action=action, reason=reason, by=SUPERVISOR, request=request)
    return dg.RunRequest(
        run_key=f"{stream}:{action.value}:{request}",
        run_config=control_run_config(config),
        tags={
            **control_tags(config),
            # Before the drains that wait in the queue.
            "dagster/priority": "10",
            MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
        },
    )
