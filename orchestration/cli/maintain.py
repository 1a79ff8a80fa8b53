"""`frazil maintain`: look at tables' health, tell what is due, and do it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jobs.catalog import NoCatalogYet, quick_catalog
from jobs.install.artifacts import resolve_jars
from jobs.install.preflight import preflight
from jobs.maintain.maintenance_run import MaintenanceOutcome, maintain_tables
from jobs.maintain.plan import ACTIONS, Plan
from jobs.maintain.results import OnProgress
from jobs.maintain.results import StepProgress as Told
from jobs.maintain.table_selection import chosen_tables
from jobs.spark.end import end_spark
from jobs.spark.session import start_session
from jobs.spark.start import SessionOnDemand
from jobs.spec.settings import Settings
from jobs.system.signals import deferred_signals
from orchestration.cli.terminal import print_columns, print_error, print_json, stderr_console
from orchestration.jobs.maintain.report import (
    DONE_COLUMNS,
    PLAN_COLUMNS,
    outcome_facts,
    plan_rows,
    progress_sentence,
    report_row,
    run_sentence,
    skip_sentences,
    table_sentences,
)
from orchestration.reconcile.stream_files import as_launched
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PLAN_TEXT = {"action", "where", "reason"}
_SHOWN_STEPS = 20


@contextlib.contextmanager
def progress_bar(tables: int) -> Iterator[tuple[OnProgress, Callable[[MaintenanceOutcome], None]]]:
    """A bar over tables on a terminal, on standard error, with the step under way; elsewhere nothing.

    Returns:
        What takes note of a step, and of a table that is done.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} tables"),
        TextColumn("{task.fields[step]}", style="dim", markup=False),
        TimeElapsedColumn(),
    )
    console = stderr_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("maintain", total=tables, step="")

        def step(told: Told) -> None:
            bar.update(task, step=progress_sentence(told))

        def done(outcome: MaintenanceOutcome) -> None:
            bar.update(task, advance=1, step="")

        yield step, done


def print_plans(outcomes: Sequence[MaintenanceOutcome]) -> None:
    """What would be done to each table, and what not and why."""
    for outcome in outcomes:
        result = outcome.result
        if result is None:
            continue
        first, *rest = table_sentences(outcome, dry_run=True)
        click.secho(first, bold=bool(result.plan.steps))
        if result.plan.steps:
            _print_steps(result.plan)
        for sentence in (*rest, *skip_sentences(result.plan)):
            click.echo(f"  {sentence}")
    click.echo(f"{run_sentence(outcomes, dry_run=True)}.")


def _print_steps(plan: Plan) -> None:
    rows = plan_rows(plan)
    print_columns(PLAN_COLUMNS, rows[:_SHOWN_STEPS], text=_PLAN_TEXT)
    if len(rows) > _SHOWN_STEPS:
        click.echo(f"and {len(rows) - _SHOWN_STEPS:,} steps more: frazil maintain {plan.table} --plan --json")


def print_done(outcomes: Sequence[MaintenanceOutcome]) -> None:
    """What was done to each table, and each before and after."""
    for outcome in outcomes:
        if outcome.result is not None:
            first, *rest = table_sentences(outcome, dry_run=False)
            click.echo(first)
            for sentence in rest:
                click.echo(f"  {sentence}")
    worked = [outcome for outcome in outcomes if outcome.result is not None and outcome.result.done]
    if worked:
        print_columns(DONE_COLUMNS, [report_row(outcome) for outcome in worked], text=["table"])
    click.echo(f"{run_sentence(outcomes, dry_run=False)}.")


def print_problems(outcomes: Sequence[MaintenanceOutcome]) -> None:
    """What went wrong, on standard error."""
    for outcome in outcomes:
        for problem in outcome.problems:
            print_error(problem)


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
        print_error(error)
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(problem.message, fix="frazil run STREAM") from None
    # A start that failed is not tried again: it would fail for the next table, too.
    spark = SessionOnDemand(lambda: _start_spark(settings), again=False)
    outcomes: list[MaintenanceOutcome] = []
    try:
        with catalog:
            chosen = chosen_tables(settings, specs, catalog, tables)
            with progress_bar(len(chosen)) as (step, done):
                for outcome in maintain_tables(
                    catalog,
                    settings,
                    specs,
                    chosen,
                    spark=spark.get,
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
    print_problems(outcomes)
    if any(outcome.problems for outcome in outcomes):
        raise SystemExit(1)


def _start_spark(settings: Settings) -> SparkSession:
    preflight()
    console = stderr_console()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    log = settings.state / "spark" / "maintain.log"
    with deferred_signals():
        return start_session(settings, "frazil maintain", work="sql", output=log)
