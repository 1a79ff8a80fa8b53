"""A stream with letters, as Dagster's jobs and sensors meet it."""

from __future__ import annotations

from typing import Any

import dagster as dg

from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.helpers.dead_letters import DeadLetterWorld
from tests.unit.orchestration.deployments import connections

DEAD = dg.AssetKey(["frazil", "orders", "payments_dead"])
# The same file, but that fields which the schema does not know are passed over.
OPENED = ("unknown_fields: fail", "unknown_fields: ignore")


def deployment_of(dead_letters: DeadLetterWorld) -> Deployment:
    return Deployment.at(dead_letters.home)


def resources(dead_letters: DeadLetterWorld) -> dict[str, object]:
    return connections(deployment_of(dead_letters))


def change_file(dead_letters: DeadLetterWorld, former: str, now: str) -> None:
    text = dead_letters.spec_file.read_text()
    assert former in text
    dead_letters.spec_file.write_text(text.replace(former, now))


def execute(
    dead_letters: DeadLetterWorld, instance: dg.DagsterInstance, job: dg.JobDefinition, config: dict[str, Any]
) -> Any:
    return job.execute_in_process(
        run_config=config, instance=instance, resources=resources(dead_letters), raise_on_error=False
    )


def metadata_of(result: Any, op: str) -> dict[str, Any]:
    """What an op said, as plain values."""
    (event,) = [each for each in result.all_events if each.is_successful_output and each.node_name == op]
    found = event.event_specific_data.metadata
    tables = {name: value.records for name, value in found.items() if isinstance(value, dg.TableMetadataValue)}
    return {name: value.value for name, value in found.items() if name not in tables} | tables


def failure_of(result: Any) -> Any:
    assert not result.success
    (event,) = result.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data


def reported(instance: dg.DagsterInstance, key: dg.AssetKey = DEAD) -> dict[str, Any]:
    """The metadata of the newest materialization of an asset."""
    event = instance.get_latest_materialization_event(key)
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


class Replays:
    """The sensor `frazil_replays`, with the cursor that the daemon would keep."""

    def __init__(self, dead_letters: DeadLetterWorld, instance: dg.DagsterInstance) -> None:
        self.definitions: dg.Definitions = build_definitions(deployment_of(dead_letters))
        self.instance: dg.DagsterInstance = instance
        self.resources: dict[str, object] = resources(dead_letters)
        self.cursor: str | None = None

    def tick(self) -> Any:
        with dg.build_sensor_context(
            self.instance, self.cursor, definitions=self.definitions, resources=self.resources
        ) as context:
            result = self.definitions.resolve_sensor_def("frazil_replays").evaluate_tick(context)
        self.cursor = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    def launch(self, request: dg.RunRequest) -> Any:
        """Run what was asked for, in this process, with the tags that it would have."""
        job = self.definitions.resolve_job_def("frazil_replay")
        return job.execute_in_process(
            run_config=request.run_config, instance=self.instance, tags=request.tags, raise_on_error=False
        )
