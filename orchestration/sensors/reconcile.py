"""Sensor `frazil_reconcile`, which keeps streams in their desired state."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from jobs.system.boot import boot_clock
from orchestration.jobs.control import JOB
from orchestration.reconcile.cursor import SensorCursor
from orchestration.sensors.reconcile_tick import run_reconcile_tick
from orchestration.sensors.run_requests import acting_runs, newest_requests
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource
from resources.kafka import KafkaResource

SENSOR = "frazil_reconcile"
INTERVAL_SECONDS = 10


def reconcile_sensor() -> dg.SensorDefinition:
    """The sensor; it starts no process itself but asks for a short run of `frazil_control` for each thing to do."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Keeps streams as their files and their operators want them: starts drivers that are gone, rolls out "
            "changed files, ends drivers of streams without a file. Reports new snapshots, lag and checks. Streams "
            "run on while it is off; one that is killed is started again by its keeper, one that fails by nobody."
        ),
    )
    def frazil_reconcile(
        context: dg.SensorEvaluationContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        kafka: KafkaResource,
    ) -> dg.SensorResult:
        memory = SensorCursor.from_cursor(context.cursor)
        instance = context.instance
        tick = run_reconcile_tick(
            deployment.deployment(),
            catalog.quick,
            kafka.quick,
            memory,
            acting_runs(instance),
            lambda streams: newest_requests(instance, streams),
            time.time(),
            boot_clock(),
        )
        return dg.SensorResult(
            run_requests=tick.requests,
            skip_reason=None if tick.requests else tick.sentence,
            cursor=memory.to_cursor(),
            asset_events=tick.events,
            dynamic_partitions_requests=tick.partition_requests,
        )

    return frazil_reconcile
