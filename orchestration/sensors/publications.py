"""The sensor that has gated streams published as often as their files say: `frazil_publications`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from assets import dagster_names
from assets.published_check import PUBLISHED
from jobs.errors import FrazilError
from orchestration.jobs.publish import JOB, PUBLISHED_TAG, publish_run
from orchestration.jobs.runs import runs_under_way
from orchestration.sensors.publications_tick import PublicationsCursor, run_publications_tick
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_publications"
INTERVAL_SECONDS = 30


def publication_sensor() -> dg.SensorDefinition:
    """The sensor; it reads tables' metadata and no row."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Has what a gated stream has landed judged and published, as often as publish.every of its file says; what "
            "is held is judged again once its contract is another."
        ),
    )
    def frazil_publications(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, now = PublicationsCursor.from_cursor(context.cursor), time.time()
        repository = context.repository_def
        loaded = set(repository.asset_graph.asset_check_keys) if repository is not None else set()
        under_way = {run.tags.get(PUBLISHED_TAG, "") for run in runs_under_way(context.instance, job=JOB)}
        try:
            settings = deployment.settings()
            tick = run_publications_tick(deployment.deployment(), catalog.quick, memory, under_way, now)
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        requests: list[dg.RunRequest] = []
        for spec, why in tick.start:
            table = dagster_names.target_keys(settings, spec)[0]
            if dg.AssetCheckKey(table, PUBLISHED) in loaded:
                requests.append(publish_run(spec.stream, table, f"{spec.stream}:publish:{now:.0f}", why, SENSOR))
            else:
                tick.sentences[spec.stream] = "its gate is new: reload the code location"
        told = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else told or "No stream has a gate that is looked at by itself.",
            cursor=memory.to_cursor(),
        )

    return frazil_publications
