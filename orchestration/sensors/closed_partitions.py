"""The sensor that reports closed hours and days of event time: `frazil_closed_partitions`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from jobs.errors import FrazilError
from jobs.steps import step
from orchestration.sensors.closed_partitions_tick import ClosedCursor, run_closed_tick
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_closed_partitions"
INTERVAL_SECONDS = 60


def closed_partitions_sensor() -> dg.SensorDefinition:
    """The sensor; it changes nothing and starts nothing."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports each hour or day of event time once, when a stream's watermark has passed its end and its tables "
            "are complete up to it; and the check closed_partitions, which warns of rows that came afterwards. Looks "
            "only at streams whose file says event_time.closes."
        ),
    )
    def frazil_closed_partitions(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, instance = ClosedCursor.from_cursor(context.cursor), context.instance
        try:
            tick = run_closed_tick(
                deployment.deployment(), catalog.quick, memory, instance.get_materialized_partitions, time.time()
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        if tick.events:
            step("closed_before_report")
        told = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            skip_reason=told or "Nothing has closed.", cursor=memory.to_cursor(), asset_events=tick.events
        )

    return frazil_closed_partitions
