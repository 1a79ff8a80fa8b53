"""`frazil audit`: whether every record of a stream stands where it belongs, exactly once."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import click
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from jobs.catalog import NoCatalogYet, quick_catalog
from jobs.errors import FrazilError
from jobs.kafka.metadata import quick_kafka
from jobs.spec.units import parse_duration
from jobs.verify.audit import audit as audit_stream
from jobs.verify.audit_result import StreamAudit
from orchestration.cli.audit.output import audit_facts, print_audit
from orchestration.cli.terminal import print_json, stderr_console
from resources.deployment import Deployment


@click.command()
@click.argument("stream")
@click.option("--table", metavar="TABLE", help="Only this one: the stream's table, or its dead letters.")
@click.option("--full", is_flag=True, help="Count everything, also what was audited before.")
@click.option(
    "--since",
    metavar="TIME",
    help="Count again what was committed since: 24h, 7d, or 2026-01-31T08:00Z; and what is new in any case.",
)
@click.option("--source", is_flag=True, help="Read Kafka, where it still has them, to name missing records exactly.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_obj
def audit(
    deployment: Deployment,
    stream: str,
    table: str | None,
    full: bool,
    since: str | None,
    source: bool,
    as_json: bool,
) -> None:
    """Show whether every record that STREAM read stands in its tables, exactly once.

    First the stamps are noted in the ledger and followed: ranges without gap or overlap, sums that add up. Then the
    tables' rows are counted by topic, partition and offset, of what is new since the last audit. Status 0 only if
    nothing is missing, nothing doubled, and the stream waits for no operator's answer.
    """
    if full and since is not None:
        raise FrazilError("--full counts everything, --since a part of it.", fix=f"frazil audit {stream} --full")
    from_then = None if since is None else _instant(stream, since)
    spec, settings = deployment.stream(stream), deployment.settings()
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=f"frazil run {stream}") from None
    with catalog, _bar() as bar:
        task = bar.add_task(f"audit {stream}", total=None, rows=0)

        def show_progress(done: int, total: int, rows: int) -> None:
            bar.update(task, completed=done, total=total or None, rows=rows)

        kafka = partial(quick_kafka, settings.kafka)
        found = audit_stream(
            spec, settings, catalog, table=table, full=full, since=from_then, kafka=kafka, on_progress=show_progress
        )
        if source and found.problems:
            _name_exactly(found, deployment, stream)
    if as_json:
        print_json(audit_facts(found))
    else:
        print_audit(found)
    if found.verdict != "complete":
        raise SystemExit(1)


def _instant(stream: str, text: str) -> datetime:
    now = datetime.now(UTC)
    try:
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise FrazilError(f"--since: '{text}' is no time.", fix=f"frazil audit {stream} --since 24h") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if at > now:
        raise FrazilError(f"--since: {text} is still to come.", fix=f"frazil audit {stream} --since 24h")
    return at


def _name_exactly(found: StreamAudit, deployment: Deployment, stream: str) -> None:
    # Imported here: most audits do not need Kafka.
    from confluent_kafka import KafkaException

    from jobs.redaction import redacted
    from jobs.verify.source_lookup import name_missing_offsets

    settings = deployment.settings()
    try:
        found.problems = name_missing_offsets(found.problems, settings.kafka, deployment.stream(stream).table.name)
    except (FrazilError, KafkaException) as problem:
        said = redacted(settings, problem.message if isinstance(problem, FrazilError) else str(problem))
        found.notes.append(f"Kafka could not be asked which records are missing: {said}")


def _bar() -> Progress:
    console = stderr_console()
    return Progress(
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} offsets looked at, {task.fields[rows]:,} rows read"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
