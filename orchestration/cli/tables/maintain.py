"""Command `frazil maintain`: finds due maintenance of tables, and runs it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.markup import escape

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, quick_catalog
from jobs.maintenance.plan.plan import ACTIONS, Plan
from jobs.maintenance.plan.table_selection import chosen_tables
from jobs.maintenance.run.maintenance_run import MaintenanceOutcome, maintain_tables
from orchestration.cli.common.options import json_option, streams_argument
from orchestration.cli.common.sql_session import sql_session
from orchestration.cli.common.terminal import (
    print_columns,
    print_error,
    print_json,
    progress_bar,
)
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
from resources.deployment import NO_STREAM_YET_FIX, Deployment

_PLAN_TEXT = {"action", "where", "reason"}
_SHOWN_STEPS = 20


def print_plans(outcomes: Sequence[MaintenanceOutcome]) -> None:
    """Print the planned steps of each table, and the reasons of skipped steps."""
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
    """Print the completed steps of each table, and its figures before and after."""
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
    """Print the problems on standard error."""
    for outcome in outcomes:
        for problem in outcome.problems:
            print_error(problem)


@click.command()
@streams_argument("tables", "[TABLE]...")
@click.option("--plan", "--dry-run", "plan_only", is_flag=True, help="Only report what would be done, and why.")
@click.option("--only", "actions", multiple=True, type=click.Choice(ACTIONS), metavar="ACTION", help=", ".join(ACTIONS))
@json_option()
@click.pass_obj
def maintain(
    deployment: Deployment, tables: tuple[str, ...], plan_only: bool, actions: tuple[str, ...], as_json: bool
) -> None:
    """Keep TABLEs healthy: compact small files, expire snapshots, remove orphan files.

    A TABLE is namespace.table, or a stream's id for its table and dead letters; without any, all that streams and
    settings name. Metadata shows what is due; Spark starts only if there is something to do. The streams may
    run meanwhile. Status 1 if a table failed; the others are done nevertheless.
    """
    settings = deployment.settings()
    specs, errors = deployment.streams()
    specs = [*specs, *as_launched(specs, errors, settings, deployment)]
    for error in errors:
        print_error(error)
    if not specs and not settings.maintenance.tables:
        if errors:
            raise SystemExit(1)
        raise FrazilError(f"There are no streams in {deployment.streams_folder} yet.", fix=NO_STREAM_YET_FIX)
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(problem.message, fix="frazil run STREAM") from None
    outcomes: list[MaintenanceOutcome] = []
    bar = progress_bar("{task.completed:,.0f} of {task.total:,.0f} tables", "[dim]{task.fields[step]}", bar=True)
    with sql_session(settings, "maintain") as spark, catalog:
        chosen = chosen_tables(settings, specs, catalog, tables)
        with bar:
            task = bar.add_task("maintain", total=len(chosen), step="")
            for outcome in maintain_tables(
                catalog,
                settings,
                specs,
                chosen,
                spark=spark.get,
                dry_run=plan_only,
                only=frozenset(actions) or None,
                on_progress=lambda told: bar.update(task, step=escape(progress_sentence(told))),
            ):
                outcomes.append(outcome)
                bar.update(task, advance=1, step="")
    if as_json:
        print_json({"dry_run": plan_only, "tables": [outcome_facts(outcome) for outcome in outcomes]})
    elif plan_only:
        print_plans(outcomes)
    else:
        print_done(outcomes)
    print_problems(outcomes)
    if any(outcome.problems for outcome in outcomes):
        raise SystemExit(1)
