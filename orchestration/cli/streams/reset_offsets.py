"""Command `frazil reset-offsets`: moves a stopped stream to other offsets, after showing the effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from jobs.base.errors import FrazilError
from jobs.streaming.operator.reset_plan import Counting, ResetPlan
from jobs.streaming.operator.reset_request import reset_request
from orchestration.cli.common.catalogs import opened_catalog
from orchestration.cli.common.consent import can_ask, consent_with_reason
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.recorded_runs import open_recorder
from orchestration.cli.common.terminal import (
    current_user,
    print_columns,
    print_json,
    progress_bar,
)
from orchestration.jobs.reset import (
    ResetConfig,
    perform_reset,
    reset_facts,
    reset_job_of,
    reset_rows,
    reset_run_config,
    reset_sentences,
    reset_tags,
)
from resources.deployment import Deployment

_TEXT = {"partition", "what", "kept by Kafka"}


@click.command("reset-offsets")
@stream_argument()
@click.option("--to", required=True, metavar="WHERE", help="earliest, latest, a time, or topic:partition=offset,…")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic, or partition as TOPIC:3.")
@click.option("--reason", help="Why; kept in the tables' stamps with your name. Needed with --yes.")
@dry_run_option()
@yes_option("Do it without a question; where no terminal can ask, nothing is changed without it.")
@json_option()
@click.pass_obj
def reset_offsets(
    deployment: Deployment,
    stream: str,
    to: str,
    topics: tuple[str, ...],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move a stopped STREAM to other offsets.

    Shows, for each partition, the old and the new offset, the records that are skipped or read again, and what becomes
    of the tables' rows. Then it asks; without a terminal it changes nothing without --yes. A time is such as
    2026-01-31T08:00:00Z: the first record that is not older.
    """
    reset_request(to, topics)
    yes = yes and not dry_run
    if yes and not reason:
        raise FrazilError("A reset needs a reason: it is kept in the tables' stamps.", fix="add --reason TEXT")
    continuous, catalog = deployment.stream(stream).continuous, deployment.settings().catalog.name
    config = ResetConfig(
        stream=stream, to=to, topics=list(topics), dry_run=not yes, reason=reason or "", by=current_user()
    )
    if yes:
        plan, problem = _carried_out(deployment, config)
        if problem:
            click.echo(f"{problem}; so there is no run of this in Dagster.", err=True)
    else:
        # A dry run creates no catalog.
        opened_catalog(deployment.settings(), stream).close()
        with _progress() as on_count:
            plan = perform_reset(deployment, config, on_count)
    if as_json:
        print_json(reset_facts(plan, catalog, done=yes))
        return
    _print_moves(plan)
    if yes:
        _print_done(plan, continuous=continuous)
        return
    for sentence in reset_sentences(plan, catalog):
        click.echo(sentence)
    if plan.changed and not plan.obstacle and not dry_run and can_ask():
        why = consent_with_reason(f"Move stream {stream} to these offsets?", yes=False, reason=reason)
        plan, problem = _carried_out(deployment, config.model_copy(update={"dry_run": False, "reason": why}))
        if problem:
            click.echo(f"{problem}; so there is no run of this in Dagster.", err=True)
        _print_done(plan, continuous=continuous)
        return
    if plan.obstacle:
        click.echo(f"Not now: {plan.obstacle.message}")
        click.echo(f"  Next: {plan.obstacle.fix}")
    elif plan.changed:
        click.echo("Nothing was changed.")
        click.echo(f"  Next: {plan.command(reason)}")


def _carried_out(deployment: Deployment, config: ResetConfig) -> tuple[ResetPlan, str | None]:
    """Carry the reset out, as a run if Dagster's storage allows.

    Returns:
        The plan that was carried out, and the reason why Dagster has no run of it; None if it has one.
    """
    with _progress() as on_count, open_recorder(deployment) as ledger:
        return ledger.run(
            reset_job_of,
            lambda there, asked: perform_reset(there, asked, on_count),
            config,
            reset_run_config(config),
            reset_tags(config),
        )


@contextlib.contextmanager
def _progress() -> Iterator[Counting]:
    """Progress bar for the counting of rows."""
    with progress_bar("{task.completed:,.0f} of {task.total:,.0f} at most", bar=True) as progress:
        task = progress.add_task("look at offsets", total=0)
        yield lambda table, read, total: progress.update(
            task, description=f"count rows of {table}", completed=read, total=total
        )


def _print_moves(plan: ResetPlan) -> None:
    rows = reset_rows(plan)
    click.echo(f"{plan.stream}: offsets to {plan.request.to}")
    if rows:
        print_columns(list(rows[0]), [list(row.values()) for row in rows], text=_TEXT)


def _print_done(plan: ResetPlan, *, continuous: bool) -> None:
    if not plan.changed:
        click.echo("Nothing moved: the stream was there already.")
        return
    click.echo(f"Done, and recorded on {plan.names}: {plan.note}")
    if plan.undo:
        click.echo(f"  Undo, as long as the stream has not run since: {plan.undo}")
    click.echo(f"  Next: frazil {'start' if continuous else 'run'} {plan.stream}")
