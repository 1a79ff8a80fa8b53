"""Maintenance ops, the steps of a run: plan ▸ compact ▸ expire snapshots ▸ remove orphans ▸ report ▸ summary.

The first looks at every table, the last sums up; those between are carried out for each table that has something to do,
and all of them for one table before the next one's turn.
"""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets import dagster_names
from assets.failures import failure
from assets.table_health import health_evaluation
from jobs.base.errors import FrazilError
from orchestration.jobs.runs import action_tags, tag_run
from orchestration.reconcile.stream_files import as_launched
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, SparkResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.config.settings.maintained_tables import MaintainedTable
    from jobs.config.settings.settings import Settings
    from jobs.config.stream.models import StreamSpec
    from jobs.maintenance.plan.results import StepProgress
    from jobs.maintenance.run.maintenance_run import MaintenanceOutcome
    from jobs.maintenance.run.table_maintenance import TableMaintenance


_PROGRESS_SECONDS = 5.0
ACTION = "maintain"
# The pool has room for one run, so that maintenance takes one place of the queue's and one JVM's memory, never more.
POOL = "frazil.maintenance"
# The actions of the steps, in the words of a plan.
COMPACT = ("compact", "position_deletes", "manifests", "remake")
EXPIRE = ("changes", "expire")
ORPHANS = ("orphans", "metadata")
# The resource that hands what one step has found to the next, in memory.
HANDED_ON = "handed_on"


class StepContext:
    """Context of a step for the maintenance of its tables: the step's log, and Spark.

    Args:
        context: Dagster's context of the step.
        spark: Spark resource, started by the first table that needs it.
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

    def report(self, progress: "StepProgress") -> None:
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
        """Note a problem that ends the table's maintenance early."""
        self._context.log.error(str(problem))


class DueTable:
    """A table that has something to do, on its way from step to step.

    Args:
        only: Only these actions; None for all.
    """

    def __init__(
        self,
        table: "MaintainedTable",
        settings: "Settings",
        specs: "Sequence[StreamSpec]",
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
        """Do what is due of these actions. A problem is reported with the table, and does not affect other tables."""
        from jobs.maintenance.run.maintenance_run import table_problem

        self._step = step
        if self._problem is not None:
            return
        try:
            self._maintenance = self._maintenance or self._begun(catalog)
            self._maintenance.carry_out(actions)
        except Exception as problem:
            self._problem = problem
            step.report_problem(table_problem(self.settings, self.table, problem))

    def _begun(self, catalog: CatalogResource) -> "TableMaintenance":
        from jobs.maintenance.plan.table_context import TableContext
        from jobs.maintenance.run.table_maintenance import TableMaintenance
        from jobs.tables.commit.protocol.named_tables import all_with_named_tables

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

    def outcome(self) -> "MaintenanceOutcome":
        """The result of the table's maintenance, after which nothing more can be done."""
        from jobs.maintenance.run.maintenance_run import maintenance_outcome

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


class TablesConfig(dg.Config):
    """Configuration of a job on tables: the tables, and whether to plan only."""

    tables: list[str] = Field(
        default_factory=list, description="Tables or streams' ids; without any, all that maintenance knows."
    )
    dry_run: bool = Field(default=False, description="Only report what would be done, and change nothing.")
    reason: str = Field(default="asked in Dagster", description="Why; kept as the run's tag.")
    by: str = Field(default="Dagster UI", description="Who asked for it; kept as the run's tag.")


class MaintainConfig(TablesConfig):
    """Configuration of maintenance: the tables, the actions, and whether to plan only."""

    actions: list[str] = Field(
        default_factory=list,
        description=f"Only these: {', '.join((*COMPACT, *EXPIRE, *ORPHANS))}.",
    )


def maintain_tags(config: TablesConfig) -> dict[str, str]:
    """The tags of a run that maintains tables, or plans that."""
    return action_tags(ACTION, config.reason, config.by)


@dataclass
class Planned:
    """Result of the plan.

    Attributes:
        tables: All of them, in their order.
        outcomes: Of those that have nothing to do, or could not be looked at; in a dry run of all.
    """

    dry_run: bool
    tables: list[str] = field(default_factory=list)
    outcomes: "list[MaintenanceOutcome]" = field(default_factory=list)


@dg.op(
    name="plan",
    pool=POOL,
    out={
        "planned": dg.Out(io_manager_key=HANDED_ON),
        "due": dg.DynamicOut(io_manager_key=HANDED_ON, description="A table that has something to do."),
    },
)
def plan_op(
    context: dg.OpExecutionContext, config: MaintainConfig, deployment: DeploymentResource, catalog: CatalogResource
) -> Iterator[Any]:
    """Decide from every table's metadata what its policy says is due; Spark is not started for it.

    A table that has nothing to do is reported here; one that cannot be looked at hides no other.
    """
    # Imported here and below: a code location that only loads should not wait for what maintenance needs.
    from jobs.clients.catalog.catalog import NoCatalogYet
    from jobs.maintenance.plan.table_selection import chosen_tables, selected_actions
    from jobs.maintenance.run.maintenance_run import maintain_tables

    tag_run(context, maintain_tags(config))
    planned = Planned(config.dry_run)
    try:
        settings = deployment.settings()
        specs = _specs(context, deployment, settings)
        try:
            with catalog.quick() as connected:
                only = selected_actions(config.actions)
                tables = chosen_tables(settings, specs, connected, config.tables)
                planned.tables = [table.name for table in tables]
                if not tables:
                    context.log.info("nothing to do: there is no table yet")
                looked = maintain_tables(connected, settings, specs, tables, spark=_no_spark, dry_run=True, only=only)
                for number, outcome in enumerate(looked):
                    if not config.dry_run and outcome.result is not None and outcome.result.plan.steps:
                        _say(context, outcome, dry_run=True)
                        due = DueTable(outcome.table, settings, specs, only)
                        yield dg.DynamicOutput(due, mapping_key=_mapping_key(number, outcome), output_name="due")
                        continue
                    planned.outcomes.append(outcome)
                    _say(context, outcome, dry_run=config.dry_run)
                    if not config.dry_run:
                        # Reported at once, so that it is there however the run ends.
                        yield from _events(context, settings, outcome)
        except NoCatalogYet as nothing:
            context.log.info(f"nothing to do: {nothing.message}")
    except FrazilError as problem:
        raise failure(problem) from None
    yield dg.Output(planned, output_name="planned")


def _no_spark() -> Any:
    raise FrazilError("A plan needs no Spark.")


def _mapping_key(number: int, outcome: "MaintenanceOutcome") -> str:
    """`orders__payments_3`: the number, as names may differ only in what Dagster does not allow."""
    return f"{dagster_names.dagster_safe(outcome.table.name).replace('.', '__').replace('-', '_')}_{number + 1}"


def _specs(context: dg.OpExecutionContext, deployment: DeploymentResource, settings: "Settings") -> "list[StreamSpec]":
    specs, errors = deployment.deployment().streams()
    for error in errors:
        for problem in error.problems:
            context.log.warning(str(problem))
    # A stream whose file broke still runs as it was launched, and its tables grow.
    return [*specs, *as_launched(specs, errors, settings, deployment.deployment())]


def _stage(name: str, actions: Sequence[str], turn: int, text: str) -> dg.OpDefinition:
    """A step of one table's maintenance.

    Args:
        turn: The later in the plan, the greater: a table's next step goes before another table's first.
        text: Description of the step, as Dagster shows it.
    """

    out = dg.Out(io_manager_key=HANDED_ON)

    @dg.op(name=name, pool=POOL, tags={"dagster/priority": str(turn)}, description=text, out=out)
    def stage(
        context: dg.OpExecutionContext, table: DueTable, catalog: CatalogResource, spark: SparkResource
    ) -> DueTable:
        table.carry_out(actions, StepContext(context, spark), catalog)
        if _is_last(context) and (problems := table.outcome().problems):
            raise failure(problems[0])
        return table

    return stage


compact_op = _stage(
    "compact",
    COMPACT,
    1,
    "Compaction: bring small data files together, apply and merge deletes, rewrite manifests, as planned.",
)
expire_op = _stage("expire_snapshots", EXPIRE, 2, "Snapshot expiry, after what has to stay is settled.")
orphans_op = _stage(
    "remove_orphans",
    ORPHANS,
    3,
    "Orphan removal: delete files that nothing names any more. Bounds the former metadata files as well.",
)


@dg.op(name="report", pool=POOL, tags={"dagster/priority": "4"}, out=dg.Out(io_manager_key=HANDED_ON))
def report_op(context: dg.OpExecutionContext, table: DueTable) -> Iterator[Any]:
    """Tell how a table is afterwards: an observation of its asset, and the check `table_health`."""
    outcome = table.outcome()
    _say(context, outcome, dry_run=False)
    # Reported at once, so that it is there however the run ends.
    yield from _events(context, table.settings, outcome)
    if _is_last(context) and outcome.problems:
        raise failure(outcome.problems[0])
    yield dg.Output(outcome)


@dg.op(name="summary", pool=POOL)
def summary_op(context: dg.OpExecutionContext, planned: Planned, maintained: list[Any]) -> None:
    """Sum up what was done to all tables, or would be; a table that failed fails the run here."""
    from orchestration.jobs.maintain.metadata import run_metadata
    from orchestration.jobs.maintain.report import run_sentence

    outcomes = sorted([*planned.outcomes, *maintained], key=lambda each: planned.tables.index(each.table.name))
    metadata = run_metadata(outcomes, dry_run=planned.dry_run)
    context.log.info(run_sentence(outcomes, dry_run=planned.dry_run))
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    if problems:
        told = failure(problems[0])
        raise dg.Failure(told.description, {**told.metadata, **metadata}, allow_retries=False)
    context.add_output_metadata(metadata)


def _is_last(context: dg.OpExecutionContext) -> bool:
    """Whether no step after this one was selected, so that it fails for the table's problems itself."""
    return not context.job_def.dependency_structure.output_to_downstream_inputs_for_node(context.op.name)


def _say(context: dg.OpExecutionContext, outcome: "MaintenanceOutcome", *, dry_run: bool) -> None:
    """Log the result of a table, in the step that maintains it."""
    from orchestration.jobs.maintain.report import skip_sentences, table_sentences

    for sentence in table_sentences(outcome, dry_run=dry_run):
        context.log.info(sentence)
    for sentence in skip_sentences(outcome.result.plan) if outcome.result else ():
        context.log.debug(f"{outcome.table.name}: {sentence}")
    for problem in outcome.problems:
        context.log.error(str(problem))
    if outcome.trace:
        context.log.debug(outcome.trace)


def _events(
    context: dg.OpExecutionContext, settings: "Settings", outcome: "MaintenanceOutcome"
) -> Iterator[dg.AssetObservation | dg.AssetCheckEvaluation]:
    from orchestration.jobs.maintain.metadata import outcome_metadata

    key, result = dagster_names.table_key(settings, outcome.table.name), outcome.result
    if result is None and outcome.table.role == "other":
        # Perhaps nothing but a wrong name in the settings, of which Dagster would make an asset.
        return
    yield dg.AssetObservation(key, metadata=outcome_metadata(outcome))
    if result is not None and outcome.health is not None:
        evaluated = health_evaluation(result.after or result.before, outcome.health, key, result.plan.branches)
        # Reported without a run as well: a later report of the table would otherwise make the check read as not
        # evaluated.
        context.instance.report_runless_asset_event(evaluated)
        yield evaluated
