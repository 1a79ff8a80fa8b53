"""Keeping tables healthy as a Dagster run: hourly for all of them, or those that an operator names in the launchpad."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from assets import names
from assets.failures import failure
from assets.table_health import health_evaluation
from jobs.errors import FrazilError
from orchestration.jobs.runs import ACTION_TAG, MAX_RUNTIME_TAG, action_tags, run_config, tag_run
from orchestration.reconcile.shown import as_launched
from resources.deployment_resource import DeploymentResource
from resources.spark import SparkResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from jobs.maintain.results import Progress
    from jobs.maintain.tables import Outcome
    from jobs.spec.models import StreamSpec
    from jobs.spec.settings import Settings

JOB = "frazil_maintain"
OP = "maintain"
ACTION = "maintain"
# The pool has room for one run, so that maintenance takes one place of the queue's and one JVM's memory, never more.
POOL = "frazil.maintenance"
# After drains (0) and the supervisor's control runs (10).
PRIORITY = "-10"
# A first compaction may take hours. A run whose process is gone does not wait for this: the schedule gives it up.
MAX_RUNTIME_SECONDS = 12 * 60 * 60
_PROGRESS_SECONDS = 5.0


class MaintainConfig(dg.Config):
    """Which tables, what of it, and whether only to look."""

    tables: list[str] = Field(
        default_factory=list, description="Tables or streams' ids; without any, all that maintenance knows."
    )
    dry_run: bool = Field(default=True, description="Only tell what would be done. Set it to false to do it.")
    actions: list[str] = Field(
        default_factory=list,
        description="Only these: compact, position_deletes, manifests, expire, orphans, metadata.",
    )
    reason: str = Field(default="asked in Dagster", description="Why; kept as the run's tag.")
    by: str = Field(default="Dagster UI", description="Who asked for it; kept as the run's tag.")


def maintain_tags(config: MaintainConfig) -> dict[str, str]:
    """The tags of a run that maintains tables, or tells what that would do."""
    return action_tags(ACTION, config.reason, config.by)


def maintain_run_config(config: MaintainConfig) -> dict[str, Any]:
    """The configuration of such a run."""
    return run_config(OP, config)


@dg.op(name=OP, pool=POOL)
def maintain_op(
    context: dg.OpExecutionContext, config: MaintainConfig, deployment: DeploymentResource, spark: SparkResource
) -> Iterator[Any]:
    """Look at every table's metadata, and do what its policy says; one that fails hides no other.

    Spark starts with the first table that needs it, and not at all if none does. It may be terminated: what was
    committed stays, and the next run goes on from there.
    """
    # Imported here and below: a code location that only loads should not wait for what maintenance needs.
    from jobs.catalog import NoCatalogYet, quick_catalog
    from orchestration.jobs.maintain_metadata import run_metadata
    from orchestration.jobs.maintain_report import run_sentence

    tag_run(context, maintain_tags(config))
    outcomes: list[Outcome] = []
    try:
        settings = deployment.settings()
        specs = _specs(context, deployment, settings)
        try:
            with quick_catalog(settings) as catalog:
                for outcome in _maintained(context, config, catalog, settings, specs, spark):
                    outcomes.append(outcome)
                    if not config.dry_run:
                        # Told at once, so that it stands there however the run ends.
                        yield from _events(settings, outcome)
        except NoCatalogYet as nothing:
            context.log.info(f"nothing to do: {nothing.message}")
    except FrazilError as problem:
        raise failure(problem) from None
    metadata = run_metadata(outcomes, dry_run=config.dry_run)
    context.log.info(run_sentence(outcomes, dry_run=config.dry_run))
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    if problems:
        told = failure(problems[0])
        raise dg.Failure(told.description, {**told.metadata, **metadata}, allow_retries=False)
    yield dg.Output(None, metadata=metadata)


def _specs(context: dg.OpExecutionContext, deployment: DeploymentResource, settings: "Settings") -> "list[StreamSpec]":
    specs, errors = deployment.deployment().streams()
    for error in errors:
        for problem in error.problems:
            context.log.warning(str(problem))
    # A stream whose file broke runs on as it was launched, and its tables grow.
    return [*specs, *as_launched(specs, errors, settings, deployment.deployment())]


def _maintained(
    context: dg.OpExecutionContext,
    config: MaintainConfig,
    catalog: "Catalog",
    settings: "Settings",
    specs: "Sequence[StreamSpec]",
    spark: SparkResource,
) -> "Iterator[Outcome]":
    from jobs.maintain.tables import actions_of, chosen_tables, maintained
    from orchestration.jobs.maintain_report import skip_sentences, table_sentences

    def session() -> Any:
        context.log.info("Spark starts")
        started = spark.get_session("sql")
        context.log.info(f"Spark UI: {started.sparkContext.uiWebUrl}")
        return started

    only = actions_of(config.actions)
    tables = chosen_tables(settings, specs, catalog, config.tables)
    if not tables:
        context.log.info("nothing to do: there is no table yet")
    for outcome in maintained(
        catalog,
        settings,
        specs,
        tables,
        spark=session,
        dry_run=config.dry_run,
        only=only,
        on_progress=_Told(context),
    ):
        for sentence in table_sentences(outcome, dry_run=config.dry_run):
            context.log.info(sentence)
        for sentence in skip_sentences(outcome.result.plan) if outcome.result else ():
            context.log.debug(f"{outcome.table.name}: {sentence}")
        for problem in outcome.problems:
            context.log.error(str(problem))
        if outcome.trace:
            context.log.debug(outcome.trace)
        yield outcome


def _events(settings: "Settings", outcome: "Outcome") -> Iterator[dg.AssetObservation | dg.AssetCheckEvaluation]:
    from orchestration.jobs.maintain_metadata import outcome_metadata

    key, result = names.table_key(settings, outcome.table.name), outcome.result
    if result is None and outcome.table.role == "other":
        # Perhaps nothing but a wrong name in the settings, of which Dagster would make an asset.
        return
    yield dg.AssetObservation(key, metadata=outcome_metadata(outcome))
    if result is not None and outcome.health is not None:
        yield health_evaluation(result.after or result.before, outcome.health, key)


class _Told:
    """The steps of a plan in the run's log, every few seconds at most; what fails is told with its table."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._context: dg.OpExecutionContext = context
        self._last: float = float("-inf")

    def __call__(self, progress: "Progress") -> None:
        from orchestration.jobs.maintain_report import progress_sentence

        now = time.monotonic()
        if now - self._last >= _PROGRESS_SECONDS:
            self._last = now
            self._context.log.info(progress_sentence(progress))


@dg.job(
    name=JOB,
    executor_def=dg.in_process_executor,
    tags={
        # The schedule asks again within the hour.
        "dagster/max_retries": "0",
        "dagster/priority": PRIORITY,
        MAX_RUNTIME_TAG: str(MAX_RUNTIME_SECONDS),
        ACTION_TAG: ACTION,
    },
    description="Keep tables healthy: compaction, delete files, manifests, snapshots, orphans, metadata. It only tells "
    "what would be done until dry_run is false.",
)
def maintain_job() -> None:
    """Keep tables healthy."""
    maintain_op()
