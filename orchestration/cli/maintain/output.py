"""Output of `frazil maintain`: the plan of each table, a bar while it is carried out, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jobs.maintain.maintenance_run import MaintenanceOutcome
from jobs.maintain.plan import Plan
from jobs.maintain.results import OnProgress
from jobs.maintain.results import StepProgress as Told
from orchestration.cli.terminal import print_columns, print_error, stderr_console
from orchestration.jobs.maintain.report import (
    DONE_COLUMNS,
    PLAN_COLUMNS,
    plan_rows,
    progress_sentence,
    report_row,
    run_sentence,
    skip_sentences,
    table_sentences,
)

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
