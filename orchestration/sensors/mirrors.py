"""The sensor that reports what is merged into mirrors beside Dagster, and how far behind they are: `frazil_mirrors`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from assets.mirrors import last_merged
from jobs.base.errors import FrazilError
from orchestration.sensors.mirrors_tick import MirrorsCursor, run_mirrors_tick
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

SENSOR = "frazil_mirrors"
INTERVAL_SECONDS = 60


def mirrors_sensor() -> dg.SensorDefinition:
    """The sensor; it merges nothing and starts nothing."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports the merges into mirrors that drivers and the command make, through which position of the source "
            "each mirror is true, and the check mirror_current. It reads metadata alone, and looks only at streams "
            "with mirrors."
        ),
    )
    def frazil_mirrors(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory = MirrorsCursor.from_cursor(context.cursor)
        try:
            tick = run_mirrors_tick(
                deployment.deployment(),
                catalog.quick,
                memory,
                lambda key: last_merged(context.instance, key),
                time.time(),
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        sentences = "\n".join(f"{mirror}: {sentence}" for mirror, sentence in tick.sentences.items())
        return dg.SensorResult(
            skip_reason=sentences or "Nothing has been merged.",
            cursor=memory.to_cursor(),
            asset_events=tick.events,
            dynamic_partitions_requests=tick.partition_requests,
        )

    return frazil_mirrors
