"""Sensor `frazil_alerts`, which sends messages about alarms to the targets of the settings."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Collection
from datetime import UTC, datetime

import dagster as dg

from jobs.base.errors import FrazilError
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from orchestration.alerts.conditions import (
    Conditions,
    look_at_checks,
    look_at_runs,
    look_at_streams,
    streams_by_asset,
)
from orchestration.alerts.delivery import deliver
from orchestration.alerts.memory import AlertMemory
from orchestration.alerts.messages import make_message
from orchestration.jobs.halted import JOB as HALTED_JOB
from orchestration.reconcile.stream_files import as_launched, read_files
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_alerts"
INTERVAL_SECONDS = 15
# A tick has 60 s in all.
_DELIVERY_SECONDS = 20.0
# The rest goes with the next tick.
_MOST_PER_MESSAGE = 20
# How far back a sensor without a memory looks for failed runs.
_RUNS_SECONDS = 3600.0
_SHOWN = 12


def run_alerts_tick(
    deployment: Deployment,
    instance: dg.DagsterInstance,
    checks: Collection[dg.AssetCheckKey],
    jobs: Collection[str],
    memory: AlertMemory,
    now: float,
    location: str | None = None,
) -> str:
    """Send what the tick before noted, and note what is to be sent by the next one; returns the tick in words.

    Args:
        checks: The asset checks that Dagster has loaded.
        jobs: Names of frazil's jobs.
        memory: Memory of the sensor; changed.
        now: Seconds since 1970.
        location: Name of the code location, whose runs alone count; None counts all runs.

    Raises:
        FrazilError: The settings cannot be read.
    """
    settings = deployment.settings()
    send_due(memory, settings, now)
    try:
        conditions, ended = look(deployment, settings, instance, checks, jobs, memory, now, location)
    except Exception as problem:
        # What has been sent has to be kept, or it would be sent with every tick.
        text = redacted(settings, f"{type(problem).__name__}: {problem}")
        return f"Nobody could look for alarms: {text}"
    memory.update(conditions, ended, now)
    memory.forget(settings.alerts.names, settings.alerts.targets, now)
    return tick_sentence(memory, conditions, now)


def look(
    deployment: Deployment,
    settings: Settings,
    instance: dg.DagsterInstance,
    checks: Collection[dg.AssetCheckKey],
    jobs: Collection[str],
    memory: AlertMemory,
    now: float,
    location: str | None = None,
) -> tuple[Conditions, set[str]]:
    """The conditions of the deployment, and the keys of failed runs that a later run has made good.

    Args:
        memory: Memory of the sensor; changed.
        now: Seconds since 1970.
        location: Name of the code location, whose runs alone count; None counts all runs.
    """
    files, conditions = read_files(deployment), Conditions()
    last_stream = look_at_streams(conditions, files, settings, now, memory.stream)
    specs = [*files.specs.values(), *as_launched(list(files.specs.values()), files.errors, settings, deployment)]
    streams = streams_by_asset(specs, settings)
    unsure = bool(files.errors or files.absence)
    last_check = look_at_checks(conditions, instance, checks, streams, memory.check, unsure=unsure)
    # Runs of `frazil_halted` fail because a stream is halted, which is an alarm of its own.
    watched = [name for name in jobs if name != HALTED_JOB]
    # Where the clock was set back, the runs of now come before those that were read.
    since = min(memory.runs_at or now - _RUNS_SECONDS, now)
    ended, runs_at = set[str](), memory.runs_at
    if not files.absence:
        # Without the files the stream of an asset's run is unknown. The run is read later.
        ended, runs_at = look_at_runs(conditions, instance, watched, streams, since, location)
    conditions.redact(settings)
    memory.stream, memory.check, memory.runs_at = last_stream, last_check, runs_at
    return conditions, ended


def send_due(memory: AlertMemory, settings: Settings, now: float) -> None:
    """Send each target what it has still to hear of, in one message.

    Args:
        now: Seconds since 1970.
    """
    began = time.monotonic()
    for name, target in zip(settings.alerts.names, settings.alerts.targets, strict=True):
        notices = list(memory.due_for(name, target))[:_MOST_PER_MESSAGE]
        if not notices or memory.waits(name, now) or time.monotonic() - began > _DELIVERY_SECONDS:
            continue
        try:
            deliver(name, target, make_message(notices, settings))
        except FrazilError as problem:
            memory.refused(name, problem.message, now)
        except Exception as problem:
            # An exception would lose the cursor, and with it what other targets have taken.
            memory.refused(name, f"Alert target {name} did not take a message: {type(problem).__name__}.", now)
        else:
            memory.delivered(name, notices)


def tick_sentence(memory: AlertMemory, conditions: Conditions, now: float) -> str:
    """A tick in words: what fires, and which deliveries fail."""
    firing = [alert for alert in memory.alerts if alert.fires and not alert.ended]
    lines: list[str] = []
    for name, receiver in sorted(memory.receivers.items()):
        pause = max(0, receiver.again - int(now))
        lines.append(f"{name}: {_times(receiver.failures)} in a row; tried again in {pause} s. {receiver.problem}")
    lines += conditions.problems[:_SHOWN]
    for alert in firing[:_SHOWN]:
        since = datetime.fromtimestamp(alert.since, UTC)
        lines.append(f"{alert.stream or 'deployment'}: {alert.id} since {since:%Y-%m-%d %H:%M:%S} UTC")
    if len(firing) > _SHOWN:
        lines.append(f"and {len(firing) - _SHOWN} more")
    if memory.left_out:
        lines.append(f"{memory.left_out} more conditions wait for a free message")
    count = len(firing)
    first = f"{count} {'alarm fires' if count == 1 else 'alarms fire'}." if count else "No alarm fires."
    return "\n".join([first, *lines])


def _times(failures: int) -> str:
    return "1 delivery failed" if failures == 1 else f"{failures} deliveries failed"


def alert_sensor() -> dg.SensorDefinition:
    """The sensor; it starts nothing and changes no stream."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Sends messages to the targets of `alerts` in the settings: when a stream stops or halts, a heartbeat is "
            "stale, an asset check or a run fails; and when that is over. Each is sent once to each target, and again "
            "with the same deduplication key if it is not known whether it arrived. A delivery that fails is tried "
            "again after pauses that grow; the tick names the target."
        ),
    )
    def frazil_alerts(context: dg.SensorEvaluationContext, deployment: DeploymentResource) -> dg.SensorResult:
        repository = context.repository_def
        assert repository is not None
        memory, origin = AlertMemory.from_cursor(context.cursor), context.code_location_origin
        try:
            sentence = run_alerts_tick(
                deployment.deployment(),
                context.instance,
                set(repository.asset_graph.asset_check_keys),
                {*repository.job_names},
                memory,
                time.time(),
                origin.location_name if origin is not None else None,
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        return dg.SensorResult(skip_reason=sentence, cursor=memory.to_cursor())

    return frazil_alerts
