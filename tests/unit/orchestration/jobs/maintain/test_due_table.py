"""A table on its way through the ops: what is told of it, and that its catalog is closed in the end."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.config.settings.maintained_tables import maintained_table
from jobs.maintenance.measure.maintenance_history import table_store
from orchestration.jobs.maintain.metadata import outcome_metadata
from orchestration.jobs.maintain.ops import DueTable, StepContext
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource
from tests.unit.orchestration.maintain_deployment import SINK, CountingSpark, Tables


def due_table(tables: Tables, *actions: str) -> DueTable:
    return DueTable(maintained_table(tables.settings, [], SINK), tables.settings, [], frozenset(actions))


@contextlib.contextmanager
def step_context(tables: Tables, instance: dg.DagsterInstance) -> Iterator[StepContext]:
    with dg.build_op_context(instance=instance) as context:
        yield StepContext(context, CountingSpark(deployment=DeploymentResource.of(tables.deployment)))


def test_what_was_done_before_a_problem_is_told_with_it(tables: Tables, instance: dg.DagsterInstance) -> None:
    tables.in_settings(f"{{name: {SINK}, metadata: {{previous_versions: 7}}}}")
    tables.add(200)
    due = due_table(tables, "compact", "metadata")
    with step_context(tables, instance) as step:
        catalog = CatalogResource(deployment=DeploymentResource.of(tables.deployment))
        due.carry_out(("metadata",), step, catalog)
        folder = Path(table_store(tables.settings, str(tables.catalog.load_table(SINK).metadata.table_uuid)).place(""))
        shutil.rmtree(folder)
        folder.write_text("no folder")
        due.carry_out(("compact",), step, catalog)
    outcome = due.outcome()
    assert outcome.result is not None and outcome.result.after is not None and outcome.health is not None
    assert [(each.step.action, each.done, each.error) for each in outcome.result.done] == [("metadata", True, None)]
    (problem,) = outcome.problems
    assert SINK in problem.message and folder.name in problem.message
    assert "Traceback" in outcome.trace
    told = outcome_metadata(outcome)
    assert (told["problems"], told["steps_done"]) == (1, 1)


class Terminated(BaseException):
    """As Dagster's Terminate raises it, wherever the run is."""


class Watched:
    """A catalog that a run is terminated in, from some question on.

    Args:
        answers: How often it still answers.
    """

    def __init__(self, catalog: Catalog, answers: int) -> None:
        self._catalog: Catalog = catalog
        self.answers: int = answers
        self.closed: bool = False

    def load_table(self, name: str) -> Table:
        if not self.answers:
            raise Terminated
        self.answers -= 1
        return self._catalog.load_table(name)

    def close(self) -> None:
        self.closed = True


def test_its_catalog_is_closed_though_its_last_measurement_is_cut_short(
    tables: Tables, instance: dg.DagsterInstance
) -> None:
    tables.in_settings(f"{{name: {SINK}, metadata: {{previous_versions: 7}}}}")
    watched = Watched(tables.catalog, 100)

    class Resource(CatalogResource):
        def quick(self) -> Catalog:
            return cast("Catalog", watched)

    due = due_table(tables, "metadata")
    with step_context(tables, instance) as step:
        due.carry_out(("metadata",), step, Resource(deployment=DeploymentResource.of(tables.deployment)))
    watched.answers = 0
    with pytest.raises(Terminated):
        due.outcome()
    assert watched.closed
