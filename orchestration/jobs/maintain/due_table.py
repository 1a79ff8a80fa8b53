"""Due table: one that has something to do, on its way through the ops of a maintenance run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from jobs.errors import FrazilError
from resources.catalog import CatalogResource
from resources.spark import SparkResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.maintain.maintenance_run import MaintenanceOutcome
    from jobs.maintain.results import StepProgress
    from jobs.maintain.table_maintenance import TableMaintenance
    from jobs.spec.maintained_tables import MaintainedTable
    from jobs.spec.models import StreamSpec
    from jobs.spec.settings import Settings

_PROGRESS_SECONDS = 5.0


class StepContext:
    """What a table meanwhile needs of the step that it is in: its log, and Spark.

    Args:
        context: The step's.
        spark: Started by the first table that needs it.
    """

    def __init__(self, context: dg.OpExecutionContext, spark: SparkResource) -> None:
        self._context: dg.OpExecutionContext = context
        self._spark: SparkResource = spark
        self._reported: float = float("-inf")
        self._failures: set[str] = set()

    def session(self) -> Any:
        """The session of the run."""
        self._context.log.info("Spark starts")
        started = self._spark.get_session("sql")
        self._context.log.info(f"Spark UI: {started.sparkContext.uiWebUrl}")
        return started

    def report(self, progress: StepProgress) -> None:
        """The steps of the plan in the log, every few seconds at most; each failure once and at once."""
        from orchestration.jobs.maintain.report import progress_sentence

        now, error = time.monotonic(), progress.result.error if progress.result else None
        if error:
            # Steps that one run of Spark was to do together fail together.
            if error not in self._failures:
                self._failures.add(error)
                self._context.log.error(progress_sentence(progress))
        elif now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            self._context.log.info(progress_sentence(progress))

    def report_problem(self, problem: FrazilError) -> None:
        """What ends the table's maintenance early."""
        self._context.log.error(str(problem))


class DueTable:
    """A table that has something to do, on its way from step to step.

    Args:
        only: Only these actions; None for all.
    """

    def __init__(
        self,
        table: MaintainedTable,
        settings: Settings,
        specs: Sequence[StreamSpec],
        only: frozenset[str] | None,
    ) -> None:
        self.table: MaintainedTable = table
        self.settings: Settings = settings
        self._specs: Sequence[StreamSpec] = specs
        self._only: frozenset[str] | None = only
        self._maintenance: TableMaintenance | None = None
        self._problem: Exception | None = None
        self._catalog: Catalog | None = None
        self._step: StepContext | None = None

    def carry_out(self, actions: Sequence[str], step: StepContext, catalog: CatalogResource) -> None:
        """Do what is due of these actions. What goes wrong is told with the table, and keeps no other from its turn."""
        from jobs.maintain.maintenance_run import table_problem

        self._step = step
        if self._problem is not None:
            return
        try:
            self._maintenance = self._maintenance or self._begun(catalog)
            self._maintenance.carry_out(actions)
        except Exception as problem:
            self._problem = problem
            step.report_problem(table_problem(self.settings, self.table, problem))

    def _begun(self, catalog: CatalogResource) -> TableMaintenance:
        from jobs.commit.named_tables import all_with_named_tables
        from jobs.maintain.table_context import TableContext
        from jobs.maintain.table_maintenance import TableMaintenance

        def now() -> StepContext:
            assert self._step is not None
            return self._step

        policy = self.table.require()
        self._catalog = catalog.quick()
        context = TableContext(
            *(self._catalog, self.settings, all_with_named_tables(self._specs, self._catalog), self.table.name, policy),
            spark=lambda: now().session(),
        )
        return TableMaintenance(context, only=self._only, on_progress=lambda progress: now().report(progress))

    def outcome(self) -> MaintenanceOutcome:
        """What became of it; nothing more can be done then."""
        from jobs.maintain.maintenance_run import maintenance_outcome

        try:
            result, problem = self._maintenance and self._maintenance.result(), self._problem
        finally:
            if self._catalog is not None:
                self._catalog.close()
        if result is None:
            problem = problem or FrazilError(f"table {self.table.name} was not tried.")
        elif problem is not None and not result.done:
            result = None
        return maintenance_outcome(self.settings, self.table, result, problem)
