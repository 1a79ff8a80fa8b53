"""`frazil publish`: what a stream has landed on its branch becomes part of main, in one commit, once."""

from __future__ import annotations

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jobs.catalog import connect_catalog, find_table
from jobs.errors import FrazilError
from jobs.publish.gate import Gate
from jobs.publish.publishing import (
    Published,
    RollbackAnswer,
    answer_rollback,
    refuse_held,
    refuse_without_branch,
    unpublished,
)
from jobs.publish.publishing import publish as publish_stream
from jobs.translate import translate_errors
from orchestration.cli.publish.contract import publish_by_contract
from orchestration.cli.publish.output import held_lines, published_facts, published_lines
from orchestration.cli.terminal import current_user, print_json, stderr_console
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--dry-run", is_flag=True, help="Only show what would be published.")
@click.option(
    "--after-rollback",
    "answer",
    type=click.Choice(["again", "leave-out"]),
    help="Main was rolled back, or the branch moved: publish again what is in question, or go on without it.",
)
@click.option("--reason", help="With --after-rollback: kept in the stamp, with your name; asked for if not given.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def publish(
    deployment: Deployment, stream: str, dry_run: bool, answer: RollbackAnswer | None, reason: str | None, as_json: bool
) -> None:
    """Append to main what STREAM has landed on the branch that its file names, and main lacks.

    One commit takes all of it, as the files that they are: readers of main see nothing of it, or all. It may run at any
    time, also while the stream lands and while others write to main; what is published is never published again.
    Where the file has publish, it is held against the contract first, and not published if a critical expectation
    fails: then the status is 1.
    """
    if answer is not None and dry_run:
        problem = "--dry-run changes nothing, and --after-rollback decides."
        raise FrazilError(problem, fix=f"frazil publish {stream} --dry-run")
    if reason is not None and answer is None:
        raise FrazilError("--reason goes with --after-rollback.", fix=f"frazil publish {stream}")
    spec, settings = deployment.stream(stream), deployment.prepared_settings()
    refuse_without_branch(spec)
    gate, became = None, ""
    with translate_errors(settings, stream), connect_catalog(settings) as catalog, _progress() as progress:
        task = progress.add_task(f"publish {stream}", total=None, now="")
        if answer is not None:
            note = f"{current_user()}: {reason or click.prompt('Why')}"
            done = Published(answer_rollback(spec, settings, catalog, answer, note))
        elif dry_run:
            table = find_table(catalog, spec.table.name)
            done = Published(unpublished(spec, table) if table is not None else None)
            if spec.publish is None and table is not None and done.interval is not None:
                refuse_held(spec, done.interval, table.metadata)
            elif spec.publish is not None and table is not None:
                gate = Gate.standing(table.metadata, stream, spec.branch_of(spec.table.name), spec.table.name)
        elif spec.publish is not None:
            judged = publish_by_contract(spec, settings, catalog, lambda said: progress.update(task, now=said))
            done, gate, became = Published(judged.interval, judged.snapshot_id), judged.gate, judged.became
        else:
            done = publish_stream(spec, settings, catalog, current_user())
    if as_json:
        print_json(published_facts(spec, done, gate, became))
    else:
        lines = [] if gate and gate.held else published_lines(spec, done, only_shown=dry_run or answer is not None)
        for line in [*lines, *(held_lines(spec, gate) if gate else [])]:
            click.echo(line)
    if gate is not None and gate.held is not None and not dry_run:
        raise SystemExit(1)


def _progress() -> Progress:
    console = stderr_console()
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
