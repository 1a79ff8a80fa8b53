"""Command `frazil plan`: what the files would change against what is live, or against other files."""

from __future__ import annotations

import click

from orchestration.cli.common.options import json_option, streams_argument
from orchestration.cli.common.terminal import print_json
from orchestration.cli.streams.plan.output import markdown, print_plan
from orchestration.deployment_plan.plan import make_plan
from resources.deployment import Deployment

# 1 is a command that could not be carried out, or a bad file; 2 one that could not be read.
CHANGES = 3
STOPS = 4


@click.command()
@streams_argument()
@click.option(
    "--against",
    metavar="FOLDER|REVISION",
    help="Compare with the files of a folder, or of a Git revision, and query no live service.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown for the comment of a pull request.")
@json_option("Print the plan as one JSON document, which frazil apply --plan takes.")
@click.option(
    "--check",
    is_flag=True,
    help=f"End with status {CHANGES} if something is left to do, {STOPS} if a reset or a breaking change needs a "
    "decision, or something could not be read.",
)
@click.pass_obj
def plan(
    deployment: Deployment, streams: tuple[str, ...], against: str | None, as_markdown: bool, as_json: bool, check: bool
) -> None:
    """Show what the files of STREAMS, or of all, and the settings would change; changes nothing.

    Files are compared with tables, positions, drivers and Dagster's definitions. Each change has a class: metadata
    only, restart, rewrite, reset, breaking. Drift is a live state that differs from the files. Needs no JVM, and asks
    Kafka only about topics that are new to a stream. The exit status is 1 if a file has problems.
    """
    if as_json and as_markdown:
        raise click.UsageError("--json goes without --markdown")
    deployment.require()
    made = make_plan(deployment, streams, against)
    if as_json:
        print_json(made.facts)
    elif as_markdown:
        click.echo(markdown(made), nl=False)
    else:
        print_plan(made, everything=bool(streams))
        for problem in made.problems:
            click.secho("Error: ", fg="red", bold=True, nl=False, err=True)
            click.echo(problem, err=True)
    if made.problems:
        raise SystemExit(1)
    if check and made.stops:
        raise SystemExit(STOPS)
    if check and made.pending:
        raise SystemExit(CHANGES)
