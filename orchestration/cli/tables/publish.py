"""Commands `frazil publish`, `release` and `discard`: publication of a stream's branch to main."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.gate import Gate
from jobs.quality.publishing.gated import (
    GateResult,
    plan_release,
    publish_if_fit,
    refuse_without_gate,
)
from jobs.quality.publishing.gated import release as release_held
from jobs.quality.publishing.publishing import (
    Published,
    RollbackAnswer,
    answer_rollback,
    refuse_held,
    refuse_without_branch,
    unpublished,
)
from jobs.quality.publishing.publishing import publish as publish_stream
from jobs.tables.commit.stamp.offsets import by_topic, describe_ranges
from orchestration.cli.common.catalogs import catalog_of_command
from orchestration.cli.common.consent import consent_with_reason, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import current_user, print_json, progress_bar
from orchestration.formatting import span
from resources.deployment import Deployment

if TYPE_CHECKING:
    from jobs.quality.publishing.discard_decision import DiscardResult

_ROLLBACK_QUESTIONS: dict[RollbackAnswer, str] = {
    "again": "Let the next publication bring again to main of table {table} what is in question?",
    "leave-out": "Let main of table {table} go on without what is in question?",
}


def published_facts(spec: StreamSpec, done: Published, gate: Gate | None = None, became: str = "") -> dict[str, Any]:
    """Publication, done or planned, as JSON; times are in UTC, offsets are by topic and partition.

    Args:
        spec: Spec of the stream.
        done: The publication.
        gate: Current state of the contract's gate; None for a stream without one.
        became: Outcome at the gate.
    """
    found = done.interval
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "branch": spec.branch_of(spec.table.name),
        "snapshot_id": done.snapshot_id,
        **({"gate": _gate_facts(gate, became)} if gate else {}),
        "rows": found.rows if found else 0,
        "files": len(found.files) if found else 0,
        "snapshots": list(found.snapshots) if found else [],
        "first_at": found.first_at.isoformat() if found and found.first_at else None,
        "last_at": found.last_at.isoformat() if found and found.last_at else None,
        "from": by_topic({p: range_.start for p, range_ in found.ranges.items()}) if found else {},
        "to": by_topic({p: range_.end for p, range_ in found.ranges.items()}) if found else {},
    }


def published_lines(spec: StreamSpec, done: Published, *, only_shown: bool) -> list[str]:
    """Lines about a publication, done or planned."""
    branch, table, found = spec.branch_of(spec.table.name), spec.table.name, done.interval
    if found is None:
        return [f"Branch {branch} of table {table} does not exist yet: the stream has landed nothing."]
    if not found.files:
        return [f"Nothing to publish: main of table {table} has all that stream {spec.stream} landed on {branch}."]
    what = f"{found.rows:,} rows in {len(found.files):,} files of {len(found.snapshots):,} snapshots on {branch}"
    lines = [
        f"To be published to main of table {table}: {what}."
        if only_shown
        else f"Published to main of table {table}, as snapshot {done.snapshot_id}: {what}."
    ]
    if found.ranges:
        lines.append(f"  offsets {describe_ranges(found.ranges)}")
    if found.first_at and found.last_at:
        age = span((datetime.now(UTC) - found.first_at).total_seconds())
        first, last = (f"{each:%Y-%m-%d %H:%M:%S}" for each in (found.first_at, found.last_at))
        lines.append(f"  landed from {first} to {last} UTC, {age} ago at most")
    if found.others:
        lines.append(f"  {found.others:,} files on the branch are of other streams, which publish them themselves")
    return [*lines, f"  Next: frazil publish {spec.stream}"] if only_shown else lines


def _gate_facts(gate: Gate, became: str) -> dict[str, Any]:
    held = gate.held
    return {
        "became": became or None,
        "generation": gate.generation,
        "held": held
        and {
            "rows": held.rows,
            "from": by_topic({p: range_.start for p, range_ in held.ranges.items()}),
            "to": by_topic({p: range_.end for p, range_ in held.ranges.items()}),
            "since": held.since.isoformat(),
            "first_at": held.first_at and held.first_at.isoformat(),
            "reasons": list(held.reasons),
        },
    }


def held_lines(spec: StreamSpec, gate: Gate) -> list[str]:
    """Lines about a stream's quarantined rows, the reasons, and the next commands; none without such rows."""
    held = gate.held
    if held is None:
        return []
    branch, file = spec.branch_of(spec.table.name), f"streams/{spec.stream}.yaml"
    age = span((datetime.now(UTC) - held.since).total_seconds())
    return [
        f"Quarantined: {held.rows:,} rows on {branch} are not published to main of table {spec.table.name}, for {age}.",
        *([f"  offsets {describe_ranges(held.ranges)}"] if held.ranges else []),
        *(f"  {reason}" for reason in held.reasons),
        f"  Next: frazil release {spec.stream} --reason TEXT, to publish them as they are; frazil discard "
        f"{spec.stream} --reason TEXT, to make dead letters of them; or correct the contract in {file}, then frazil "
        f"publish {spec.stream}",
    ]


def publish_by_contract(
    spec: StreamSpec, settings: Settings, catalog: Catalog, on_progress: Callable[[str], None]
) -> GateResult:
    """Check a stream's unpublished rows by its contract, and publish or quarantine them.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment.
        catalog: Catalog with the tables.
        on_progress: Callback with a phrase for each step.
    """
    # Imported here: only streams that publish by contract need these modules.
    from jobs.quality.contracts.gate_judge import ContractJudge
    from orchestration.cli.common.sql_session import sql_session

    by = current_user()
    with sql_session(settings, "publish") as session:
        judge = ContractJudge(spec, settings, catalog, session.get, by=by, on_progress=on_progress)
        return publish_if_fit(spec, settings, catalog, by, judge, judge.judged_by)


@click.command()
@stream_argument()
@dry_run_option("Show what would be published, and change nothing.")
@click.option(
    "--after-rollback",
    "answer",
    type=click.Choice(["again", "leave-out"]),
    help="Main was rolled back, or the branch moved: publish the rows in question again, or go on without them.",
)
@click.option("--reason", help="With --after-rollback: kept in the stamp, with your name; asked for if not given.")
@yes_option("With --after-rollback: do it without a question; needed where no terminal can ask.")
@json_option()
@click.pass_obj
def publish(
    deployment: Deployment,
    stream: str,
    dry_run: bool,
    answer: RollbackAnswer | None,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Publish STREAM's unpublished rows: append them from its branch to main.

    One commit takes over all their files, so readers of main see all of the rows or none. It may run at any time, also
    while the stream lands and while others write to main; no row is published twice. If the file has publish, the
    contract checks the rows first. If a critical expectation fails, they are not published, and the status is 1.
    """
    if answer is not None and dry_run:
        problem = "--dry-run changes nothing, and --after-rollback decides."
        raise FrazilError(problem, fix=f"frazil publish {stream} --dry-run")
    if (reason is not None or yes) and answer is None:
        raise FrazilError("--reason and --yes go with --after-rollback.", fix=f"frazil publish {stream}")
    spec, settings = deployment.stream(stream), deployment.settings()
    refuse_without_branch(spec)
    note = ""
    if answer is not None:
        why = consent_with_reason(_ROLLBACK_QUESTIONS[answer].format(table=spec.table.name), yes=yes, reason=reason)
        note = f"{current_user()}: {why}"
    gate, became = None, ""
    with (
        translate_errors(settings, stream),
        catalog_of_command(settings, stream, looks=dry_run) as catalog,
        progress_bar("{task.fields[now]}") as progress,
    ):
        task = progress.add_task(f"publish {stream}", total=None, now="")
        if answer is not None:
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


@click.command()
@stream_argument()
@click.option("--reason", help="Kept in the table's stamps, with your name; asked for if it is not given.")
@yes_option()
@dry_run_option("Show what would be published, and change nothing.")
@json_option()
@click.pass_obj
def release(deployment: Deployment, stream: str, reason: str | None, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Publish the quarantined rows of STREAM as they are, against its contract.

    Later rows wait for the next check (frazil publish). Your name and the reason are kept in the snapshot that main
    gets. Shows the rows and asks.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    refuse_without_gate(spec)
    with translate_errors(settings, stream), catalog_of_command(settings, stream, looks=dry_run) as catalog:
        done = plan_release(spec, settings, catalog)
        if not dry_run:
            plan = Published(done.interval, done.snapshot_id)
            show_plan(published_lines(spec, plan, only_shown=True)[:-1], as_json=as_json)
            show_plan(held_lines(spec, done.gate)[:-1], as_json=as_json)
            question = f"Publish them to main of table {spec.table.name} as they are?"
            why = consent_with_reason(question, yes=yes, reason=reason)
            done = release_held(spec, settings, catalog, current_user(), why)
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


@click.command()
@stream_argument()
@click.option(
    "--reason", help="Kept in the table's stamps and in the dead letters, with your name; asked for if not given."
)
@click.option("--through", type=int, help="Only up to this snapshot of the branch; the rest is judged again.")
@click.option(
    "--without-kafka", is_flag=True, help="Do not read the records again: dead letters keep the rows as JSON."
)
@dry_run_option("Show what would be discarded, and change nothing.")
@yes_option()
@json_option()
@click.pass_obj
def discard(
    deployment: Deployment,
    stream: str,
    reason: str | None,
    through: int | None,
    without_kafka: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make dead letters of the quarantined rows of STREAM, and let main go on without them.

    Each record becomes a dead letter with your name, the reason and the failed expectations. Once contract or stream
    are corrected, frazil replay STREAM --reason discarded brings them back. Later rows wait for the next check (frazil
    publish). Shows the rows and asks. If it is interrupted, run it again: it finishes the decision.
    """
    # Imported here: these imports would slow down every other command.
    from jobs.quality.publishing.discard_decision import plan_discard
    from jobs.quality.publishing.discarding import discard as discard_held
    from jobs.quality.publishing.discarding import without_records

    spec, settings = deployment.stream(stream), deployment.settings()
    with translate_errors(settings, stream), catalog_of_command(settings, stream, looks=dry_run) as catalog:
        plan = plan_discard(spec, settings, catalog, current_user(), reason or "", through)
        if not dry_run:
            # An interrupted discard is decided already.
            why = reason or plan.discard.why
            if not plan.resumed:
                show_plan(discard_lines(spec, plan)[:-1], as_json=as_json)
                question = f"Make dead letters of them, and let main of table {spec.table.name} go on without them?"
                why = consent_with_reason(question, yes=yes, reason=reason)
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
    """Discard, done or planned, as JSON; times are in UTC, offsets are by topic and partition."""
    from orchestration.jobs.discard_report import discard_document

    return discard_document(spec, done)


def discard_lines(spec: StreamSpec, done: DiscardResult) -> list[str]:
    """Lines about a discard, done or planned."""
    what, letters, shown = done.discard, done.letters, done.snapshot_id is None
    rows = f"{what.rows:,} rows of branch {what.branch}"
    lines = [
        f"To be discarded: {rows}, which become {letters.letters:,} dead letters in {spec.dead_letter_table}."
        if shown
        else f"Discarded: {rows}. {letters.letters:,} dead letters are in {spec.dead_letter_table}; main of table "
        f"{spec.table.name} skips them from snapshot {done.snapshot_id} on."
    ]
    if what.ranges:
        lines.append(f"  offsets {describe_ranges(what.ranges)}")
    lines += [f"  {reason}" for reason in what.reasons]
    if letters.as_rows:
        lines.append(
            f"  {letters.as_rows:,} dead letters keep the row as JSON: Kafka does not have their records any more"
        )
    if letters.masked:
        lines.append(f"  {letters.masked:,} dead letters do not keep all of their records: errors.dead_letters.mask")
    if done.resumed:
        lines.append(f"  decided by {what.by} at {what.at:%Y-%m-%d %H:%M:%S} UTC ({what.why})")
    if shown:
        return [*lines, f"  Next: frazil discard {spec.stream} --reason TEXT"]
    return [
        *lines,
        f"  Next: frazil publish {spec.stream}, which judges what has landed since; and, once contract or stream are "
        f"corrected, frazil replay {spec.stream} --reason discarded",
    ]
