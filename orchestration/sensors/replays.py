"""The sensor that proposes replays, or starts them where a stream's file says so: `frazil_replays`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from jobs.errors import FrazilError
from orchestration.jobs.replay import CONFIG_TAG, JOB, ReplayConfig, replay_run_config, replay_tags
from orchestration.jobs.runs import BY_TAG, REQUEST_TAG, STREAM_TAG, runs_under_way
from orchestration.sensors.replay_proposal import Proposal
from orchestration.sensors.replays_tick import ReplaysCursor, run_replays_tick
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_replays"
INTERVAL_SECONDS = 60


def replay_sensor() -> dg.SensorDefinition:
    """The sensor; it touches no table itself."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "When a stream's configuration has changed, tries a sample of the letters that earlier configurations "
            "left. If they would come back now, the check replay_would_help of the dead letters warns and names the "
            "command; with errors.replay.automatic the replay is started, once per configuration. Asks nobody while "
            "no configuration changes."
        ),
    )
    def frazil_replays(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, instance = ReplaysCursor.from_cursor(context.cursor), context.instance
        try:
            tick = run_replays_tick(
                deployment.deployment(),
                catalog.quick,
                memory,
                replays_under_way(instance),
                lambda stream: newest_replay(instance, stream)[1],
                time.time(),
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        requests = [replay_run(each, newest_replay(instance, each.stream)[0] + 1) for each in tick.start]
        told = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else told or "No configuration has changed.",
            cursor=memory.to_cursor(),
            asset_events=tick.events,
        )

    return frazil_replays


def replays_under_way(instance: dg.DagsterInstance) -> set[str]:
    """Streams whose letters a run replays now, or tries; runs whose process is gone are given up."""
    return {run.tags.get(STREAM_TAG, "") for run in runs_under_way(instance, job=JOB)}


def newest_replay(instance: dg.DagsterInstance, stream: str) -> tuple[int, str]:
    """The number of the newest replay that the sensor asked for, and the hash of the configuration that it was for.

    Dagster's runs say so, not the cursor: it is written only after the runs are launched, and may be lost.
    """
    asked_for = {STREAM_TAG: stream, BY_TAG: SENSOR}
    for run in instance.get_runs(dg.RunsFilter(job_name=JOB, tags=asked_for), limit=20):
        number, config = run.tags.get(REQUEST_TAG, ""), run.tags.get(CONFIG_TAG, "")
        if number.isdecimal() and config:
            return int(number), config
    return 0, ""


def replay_run(proposal: Proposal, number: int) -> dg.RunRequest:
    """The run that replays what was proposed.

    Args:
        number: Which no earlier run of the stream has.
    """
    tried, good = (sum(getattr(each, what) for each in proposal.helping) for what in ("tried", "good"))
    config = ReplayConfig(
        stream=proposal.stream,
        reasons=[each.reason for each in proposal.helping],
        where=proposal.where,
        dry_run=False,
        reason=f"the configuration has changed to {proposal.config}; of {tried} letters that were tried {good} succeed",
        by=SENSOR,
    )
    return dg.RunRequest(
        run_key=f"{proposal.stream}:replay:{proposal.config}:{number}",
        run_config=replay_run_config(config),
        tags={**replay_tags(config), CONFIG_TAG: proposal.config, REQUEST_TAG: str(number)},
    )
