"""The deployment as Dagster has it: its definitions and its instance, without a webserver or a daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg

from orchestration.cli.common.dagster_instance import dagster_instance
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.story.deployment import Deployment as StoryDeployment

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class DagsterView:
    """Definitions and instance of a deployment.

    Args:
        definitions: As the code location has them.
        instance: The deployment's own.
    """

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions: dg.Definitions = definitions
        self.instance: dg.DagsterInstance = instance

    def run_job(self, job: str, config: Mapping[str, Any] | None = None) -> dg.ExecuteInProcessResult:
        """Run a job in this process."""
        return self.definitions.resolve_job_def(job).execute_in_process(
            run_config={**_QUIET, **(config or {})}, instance=self.instance, raise_on_error=False
        )

    def materialize(self, *tables: str) -> dg.ExecuteInProcessResult:
        """Materialize the assets of tables in this process, and evaluate their checks."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            run_config=_QUIET, instance=self.instance, asset_selection=list(map(_key_of, tables)), raise_on_error=False
        )

    def metadata(self, table: str) -> dict[str, Any]:
        """Values of the metadata that the newest materialization of a table has in the instance."""
        event = self.instance.get_latest_materialization_event(_key_of(table))
        assert event is not None and event.asset_materialization is not None, f"{table} was never materialized"
        return {name: entry.value for name, entry in event.asset_materialization.metadata.items()}

    def finished_runs(self, job: str) -> list[tuple[str, str, str]]:
        """Action, reason and status of the runs of a job, the oldest first."""
        runs = self.instance.get_runs(dg.RunsFilter(job_name=job))
        return [(run.tags["frazil/action"], run.tags["frazil/reason"], run.status.value) for run in reversed(runs)]


def _key_of(table: str) -> dg.AssetKey:
    # The embedded catalog is called frazil.
    return dg.AssetKey(["frazil", *table.split(".")])


def verdicts(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str], bool]:
    """Whether each check of a run passed, by the table and the check's name."""
    return {
        (".".join(check.asset_key.path[1:]), check.check_name): check.passed
        for check in result.get_asset_check_evaluations()
    }


@contextmanager
def dagster_view(deployment: StoryDeployment) -> Iterator[DagsterView]:
    """Load the definitions of a deployment, and open its instance."""
    place = Deployment.at(deployment.home)
    with dagster_instance(place) as instance:
        yield DagsterView(build_definitions(place), instance)
