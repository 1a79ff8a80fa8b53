"""`frazil discard`: what is held at a stream's gate becomes dead letters, and main goes on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jobs.catalog import connect_catalog
from jobs.commit.offsets import describe_ranges
from jobs.spec.models import StreamSpec
from jobs.translate import translate_errors
from orchestration.cli.terminal import current_user, print_json
from resources.deployment import Deployment

if TYPE_CHECKING:
    from jobs.publish.discard_decision import DiscardResult


@click.command()
@click.argument("stream")
@click.option("--reason", help="Kept in the table's stamps and in the letters, with your name; asked for if not given.")
@click.option("--through", type=int, help="Only up to this snapshot of the branch; the rest is judged again.")
@click.option("--without-kafka", is_flag=True, help="Do not read the records again: letters keep the rows as JSON.")
@click.option("--dry-run", is_flag=True, help="Only show what would be discarded.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def discard(
    deployment: Deployment,
    stream: str,
    reason: str | None,
    through: int | None,
    without_kafka: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make dead letters of what is held at the gate of STREAM, and let main go on without it.

    Each record becomes a letter with your name, the reason and what the contract said; frazil replay STREAM --reason
    discarded brings letters back, once contract or stream are corrected. Rows that have landed behind what is held wait
    for the next judgement (frazil publish). If it is interrupted, it is run again, and finishes what was decided.
    """
    # Imported here: what it needs would make every other command wait.
    from jobs.publish.discard_decision import plan_discard
    from jobs.publish.discarding import discard as discard_held
    from jobs.publish.discarding import without_records

    spec, settings = deployment.stream(stream), deployment.prepared_settings()
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        plan = plan_discard(spec, settings, catalog, current_user(), reason or "", through)
        if not dry_run:
            why = reason or plan.discard.why or click.prompt("Why")
            records = without_records if without_kafka else None
            done = discard_held(spec, settings, catalog, current_user(), why, through=through, records=records)
        else:
            done = plan
    if as_json:
        print_json(discard_facts(spec, done))
        return
    for line in discard_lines(spec, done):
        click.echo(line)


def discard_facts(spec: StreamSpec, done: DiscardResult) -> dict[str, Any]:
    """What was, or would be, discarded; times in UTC, offsets by topic and partition."""
    from orchestration.jobs.discard_report import discard_document

    return discard_document(spec, done)


def discard_lines(spec: StreamSpec, done: DiscardResult) -> list[str]:
    """What was, or would be, discarded, for people."""
    what, letters, shown = done.discard, done.letters, done.snapshot_id is None
    rows = f"{what.rows:,} rows of branch {what.branch}"
    lines = [
        f"To be discarded: {rows}, which become {letters.letters:,} dead letters in {spec.dead_letter_table}."
        if shown
        else f"Discarded: {rows}. {letters.letters:,} dead letters are in {spec.dead_letter_table}; main of table "
        f"{spec.table.name} is past them, as snapshot {done.snapshot_id}, and has none of them."
    ]
    if what.ranges:
        lines.append(f"  offsets {describe_ranges(what.ranges)}")
    lines += [f"  {reason}" for reason in what.reasons]
    if letters.as_rows:
        lines.append(f"  {letters.as_rows:,} letters keep the row as JSON: Kafka does not have their records any more")
    if letters.masked:
        lines.append(f"  {letters.masked:,} letters do not keep all of their records: errors.dead_letters.mask")
    if done.resumed:
        lines.append(f"  decided by {what.by} at {what.at:%Y-%m-%d %H:%M:%S} UTC ({what.why})")
    if shown:
        return [*lines, f"  Next: frazil discard {spec.stream} --reason TEXT"]
    return [
        *lines,
        f"  Next: frazil publish {spec.stream}, which judges what has landed since; and, once contract or stream are "
        f"corrected, frazil replay {spec.stream} --reason discarded",
    ]
