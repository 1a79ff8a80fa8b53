"""What Dagster loads: the assets of every stream of the deployment that FRAZIL_HOME names, or of the current folder.

Loading reads files and nothing else: no connection is opened and no JVM started. A broken file does not hide the other
streams: it is logged, and stands in the metadata that `dg list defs` and the code location's page show.
"""

from __future__ import annotations

import dagster as dg

from assets.problems import problem_assets
from assets.streams import stream_assets, topic_specs
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from resources.catalog import CatalogResource
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.kafka import KafkaResource
from resources.spark import SparkResource


def build_definitions(deployment: Deployment) -> dg.Definitions:
    """The definitions of a deployment."""
    specs, errors = deployment.streams()
    try:
        settings = deployment.settings()
    except SpecError as error:
        # Asset keys hold the catalog's name; a run reads the settings again and tells what is wrong with them.
        settings, errors = Settings.embedded(deployment.home), [*errors, error]
    for error in errors:
        for problem in error.problems:
            dg.get_dagster_logger("frazil").warning(problem)
    paths = DeploymentResource.of(deployment)
    return dg.Definitions(
        assets=[*topic_specs(specs), *(stream_assets(spec, settings) for spec in specs), *problem_assets(errors)],
        resources={
            "deployment": paths,
            "kafka": KafkaResource(deployment=paths),
            "catalog": CatalogResource(deployment=paths),
            "spark": SparkResource(deployment=paths),
        },
        # One Spark session per run, in the run's own process: a process per step would start a JVM for each.
        executor=dg.in_process_executor,
    )


defs = build_definitions(Deployment.here())
