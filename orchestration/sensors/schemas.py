"""The sensor that holds streams against their tables before a record shows the difference: `frazil_schemas`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from assets.schema_contract import downstream_of
from jobs.errors import FrazilError
from orchestration.sensors.schemas_tick import SchemasCursor, refusal_sentence, run_schemas_tick
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource
from resources.registry import RegistryResource

SENSOR = "frazil_schemas"
INTERVAL_SECONDS = 30


def schema_sensor() -> dg.SensorDefinition:
    """The sensor; it changes nothing and starts nothing."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Looks at streams whose file has changed, and in turn at all tables, which somebody may have altered, and "
            "at the newest schemas of the registry; reports the check schema_contract: what would become of records, "
            "before one of them comes, and who is downstream. A catalog or a registry that is away makes no check fail."
        ),
    )
    def frazil_schemas(
        context: dg.SensorEvaluationContext,
        deployment: DeploymentResource,
        catalog: CatalogResource,
        registry: RegistryResource,
    ) -> dg.SensorResult:
        memory = SchemasCursor.from_cursor(context.cursor)
        repository = context.repository_def
        graph = repository.asset_graph if repository is not None else None
        try:
            tick = run_schemas_tick(
                deployment.deployment(),
                catalog.quick,
                registry.quick,
                memory,
                lambda keys: downstream_of(graph, keys) if graph is not None else [],
                time.time(),
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=refusal_sentence(problem), cursor=context.cursor)
        return dg.SensorResult(skip_reason=tick.sentence, cursor=memory.to_cursor(), asset_events=tick.events)

    return frazil_schemas
