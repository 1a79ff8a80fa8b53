"""`frazil release`: what is held at a stream's gate is published in spite of its contract."""

from __future__ import annotations

import click

from jobs.catalog import connect_catalog
from jobs.publish.gated import plan_release, refuse_without_gate
from jobs.publish.gated import release as release_held
from jobs.publish.publishing import Published
from jobs.translate import translate_errors
from orchestration.cli.publish.output import held_lines, published_facts, published_lines
from orchestration.cli.terminal import current_user, print_json
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--reason", help="Kept in the table's stamps, with your name; asked for if it is not given.")
@click.option("--dry-run", is_flag=True, help="Only show what would be published.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def release(deployment: Deployment, stream: str, reason: str | None, dry_run: bool, as_json: bool) -> None:
    """Publish what is held at the gate of STREAM as it is, whatever its contract says of it.

    Only what was judged: rows that have landed behind it wait for the next judgement (frazil publish). Your name and
    the reason stand in the snapshot that main gets.
    """
    spec, settings = deployment.stream(stream), deployment.prepared_settings()
    refuse_without_gate(spec)
    why = "" if dry_run else reason or click.prompt("Why")
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        done = (
            plan_release(spec, settings, catalog)
            if dry_run
            else release_held(spec, settings, catalog, current_user(), why)
        )
    published = Published(done.interval, done.snapshot_id)
    if as_json:
        print_json(published_facts(spec, published, done.gate, done.became))
        return
    if dry_run:
        lines = [*published_lines(spec, published, only_shown=True)[:-1], *held_lines(spec, done.gate)]
        for line in lines:
            click.echo(line)
        return
    for line in published_lines(spec, published, only_shown=False):
        click.echo(line)
    click.echo(f"  Next: frazil publish {stream}, which judges what has landed since")
