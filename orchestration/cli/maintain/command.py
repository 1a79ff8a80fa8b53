"""`frazil maintain`: look at tables' health, tell what is due, and do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jobs.catalog import NoCatalogYet, quick_catalog
from jobs.errors import FrazilError
from jobs.install.artifacts import resolve_jars
from jobs.install.preflight import preflight
from jobs.maintain.plan import ACTIONS
from jobs.maintain.tables import Outcome, chosen_tables, maintained
from jobs.spark.end import end_spark, jvm_is_gone
from jobs.spark.session import start_session
from jobs.spec.settings import Settings
from jobs.system.signals import deferred_signals
from orchestration.cli.maintain.output import print_done, print_plans, progress_bar, tell_problems
from orchestration.cli.terminal import messages, print_json, tell
from orchestration.jobs.maintain.report import outcome_facts
from orchestration.reconcile.desired import as_launched
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option("--plan", "--dry-run", "plan_only", is_flag=True, help="Only tell what would be done, and why.")
@click.option("--only", "actions", multiple=True, type=click.Choice(ACTIONS), metavar="ACTION", help=", ".join(ACTIONS))
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def maintain(
    deployment: Deployment, tables: tuple[str, ...], plan_only: bool, actions: tuple[str, ...], as_json: bool
) -> None:
    """Keep TABLEs healthy: merge small files, expire snapshots, remove what nobody names any more.

    A TABLE is namespace.table, or a stream's id for its table and dead letters; without any, all that streams and
    settings name. What is due is decided from metadata; Spark starts only if there is something to do. The streams may
    run meanwhile. Status 1 if a table failed; the others are done all the same.
    """
    settings = deployment.prepared_settings()
    specs, errors = deployment.streams()
    specs = [*specs, *as_launched(specs, errors, settings, deployment)]
    for error in errors:
        tell(error)
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(problem.message, fix="frazil run STREAM") from None
    outcomes: list[Outcome] = []
    try:
        with catalog:
            chosen = chosen_tables(settings, specs, catalog, tables)
            with progress_bar(len(chosen)) as (step, done):
                for outcome in maintained(
                    catalog,
                    settings,
                    specs,
                    chosen,
                    spark=_Spark(settings),
                    dry_run=plan_only,
                    only=frozenset(actions) or None,
                    on_progress=step,
                ):
                    outcomes.append(outcome)
                    done(outcome)
    finally:
        end_spark()
    if as_json:
        print_json({"dry_run": plan_only, "tables": [outcome_facts(outcome) for outcome in outcomes]})
    elif plan_only:
        print_plans(outcomes)
    else:
        print_done(outcomes)
    tell_problems(outcomes)
    if any(outcome.problems for outcome in outcomes):
        raise SystemExit(1)


class _Spark:
    """The session, started by the first table that needs it, anew if its JVM has ended; its output goes to a log."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Settings = settings
        self._session: SparkSession | None = None
        self._problem: FrazilError | None = None

    def __call__(self) -> SparkSession:
        if self._problem is not None:
            # It does not start for the next table either.
            raise self._problem
        if self._session is not None and jvm_is_gone():
            self._session = None
            end_spark()
        if self._session is None:
            try:
                self._session = self._started()
            except FrazilError as problem:
                self._problem = problem
                raise
        return self._session

    def _started(self) -> SparkSession:
        preflight()
        console = messages()
        resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
        log = self._settings.state / "spark" / "maintain.log"
        with deferred_signals():
            return start_session(self._settings, "frazil maintain", work="sql", output=log)
