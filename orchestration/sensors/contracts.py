"""The sensor that has contracts checked as rows come: `frazil_contracts`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time

import dagster as dg

from assets import dagster_names
from assets.contract_checks import expectations_by_key
from jobs.errors import FrazilError
from orchestration.jobs.contract import CHECKED_TAG, JOB, check_run
from orchestration.jobs.runs import runs_under_way
from orchestration.sensors.contracts_tick import ContractsCursor, run_contracts_tick
from resources.catalog import CatalogResource
from resources.deployment_resource import DeploymentResource

SENSOR = "frazil_contracts"
INTERVAL_SECONDS = 30


def contract_sensor() -> dg.SensorDefinition:
    """The sensor; it reads tables' metadata and no row."""

    @dg.sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Starts the checks of a stream's contract as soon as contract.check of its file says so: after so many "
            "snapshots that were not checked, or when the first of them has waited for so long."
        ),
    )
    def frazil_contracts(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, now = ContractsCursor.from_cursor(context.cursor), time.time()
        repository = context.repository_def
        loaded = set(repository.asset_graph.asset_check_keys) if repository is not None else set()
        under_way = {run.tags.get(CHECKED_TAG, "") for run in runs_under_way(context.instance, job=JOB)}
        try:
            settings = deployment.settings()
            tick = run_contracts_tick(deployment.deployment(), catalog.quick, memory, under_way, now)
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        requests: list[dg.RunRequest] = []
        for spec, why in tick.start:
            keys = [
                key for key in expectations_by_key(spec, dagster_names.target_keys(settings, spec)) if key in loaded
            ]
            if keys:
                requests.append(check_run(spec.stream, keys, f"{spec.stream}:check:{now:.0f}", why, SENSOR))
            else:
                tick.sentences[spec.stream] = "its contract is new: reload the code location"
        told = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else told or "No stream is to be checked by what is new.",
            cursor=memory.to_cursor(),
        )

    return frazil_contracts
