"""`frazil replay`: replays dead letters, returns them to a topic, or imports those of a Kafka Connect sink."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.correction import Correction, load_correction
from jobs.dead_letters.connect_queue.importer import QueueResult, dry_run_queue, import_queue
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import (
    ReplayProgress,
    ReplayResult,
    ReturnResult,
    left_out_sentences,
)
from jobs.dead_letters.replay.return_to_topic import return_letters_to_topic
from jobs.dead_letters.replay.run import dry_run as run_dry
from jobs.dead_letters.replay.run import replay as run
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.tables.dead_letter_table.selection import parse_selection
from orchestration.cli.common.catalogs import catalog_of_command
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.selection_options import selecting
from orchestration.cli.common.terminal import current_user, print_json, progress_bar
from resources.deployment import Deployment


@click.command()
@stream_argument()
@selecting
@click.option(
    "--correction",
    "correction_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="YAML laid over the stream's file for this replay only; kept in the dead letters.",
)
@click.option(
    "--fewer-columns",
    is_flag=True,
    help="Let the correction leave out columns of the stream's file: they are null in the rows that come back.",
)
@click.option(
    "--dry-run", is_flag=True, help="Report how many would succeed, and why others would not; change nothing."
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N dead letters per second."
)
@click.option("--from-topic", metavar="TOPIC", help="Take the dead letters of a Kafka Connect sink instead.")
@click.option("--to-topic", metavar="TOPIC", help="Put the dead letters into a topic as the original records instead.")
@json_option()
@click.pass_obj
def replay(
    deployment: Deployment,
    stream: str,
    correction_file: Path | None,
    fewer_columns: bool,
    dry_run: bool,
    rate: float | None,
    from_topic: str | None,
    to_topic: str | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Run the dead letters of STREAM through its pipeline as it is now, into the same tables, each record once.

    Without a selection, all new ones and those that failed again are replayed; exhausted (parked) and dismissed ones
    with --state. The stream may run meanwhile. Ends with status 1 if dead letters could not be read; those that fail
    again are no error.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    selection = parse_selection(**selected)
    correction = load_correction(deployment.file_of(stream), correction_file) if correction_file else None
    request = ReplayRequest(selection, correction, rate, current_user(), fewer_columns=fewer_columns)
    if to_topic and (from_topic or correction):
        raise FrazilError(
            "--to-topic puts dead letters into a topic as the original records: it takes neither --from-topic nor "
            "--correction.",
            fix=f"frazil replay {stream} --to-topic {to_topic}",
        )
    with translate_errors(settings, stream), catalog_of_command(settings, stream, looks=dry_run) as catalog:
        if from_topic:
            if any(selected.values()):
                raise FrazilError(
                    "--from-topic takes a whole queue, and has no selection.",
                    fix=f"frazil replay {stream} --from-topic {from_topic}",
                )
            run_queue = dry_run_queue if dry_run else import_queue
            with _bar(f"{from_topic} to {spec.table.name}") as progress:
                imported = run_queue(spec, settings, catalog, from_topic, request, on_progress=progress)
            print_json(asdict(imported)) if as_json else _print_queue(imported, spec.dead_letter_table)
            return
        if to_topic:
            with _bar(f"dead letters of {stream} to {to_topic}") as progress:
                back = return_letters_to_topic(
                    spec, settings, catalog, to_topic, request, dry_run=dry_run, on_progress=progress
                )
            print_json(asdict(back)) if as_json else _print_return(back)
            if back.unreadable:
                raise SystemExit(1)
            return
        with _bar(f"dead letters of {stream}") as progress:
            if dry_run:
                schemas = schema_lookup(request.corrected(spec), settings)
                result = run_dry(spec, catalog, request, schemas=schemas, on_progress=progress)
            else:
                result = run(spec, settings, catalog, request, on_progress=progress)
    print_json(_replay_facts(result)) if as_json else _print_result(result, correction)
    if result.unreadable:
        raise SystemExit(1)


def _replay_facts(result: ReplayResult) -> dict[str, Any]:
    """Everything about a replay, as `--json` prints it."""
    facts = asdict(result)
    facts["there_is"] = None if result.there_is is None else _kinds(result.there_is.by_kind)
    facts["records_per_second"] = round(result.selected / result.seconds) if result.seconds else None
    return facts


def _kinds(by_kind: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [{"state": state, "reason": reason, "letters": n} for (state, reason), n in sorted(by_kind.items())]


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[ReplayProgress], None]]:
    """A bar on a terminal, on standard error; elsewhere nothing."""
    with progress_bar("{task.completed:,.0f} of {task.total:,.0f}", "{task.fields[failed]:,} failed", bar=True) as bar:
        shown = bar.add_task(what, total=0, failed=0)
        yield lambda now: bar.update(shown, total=now.total, completed=now.done, failed=now.failed)


def _print_result(result: ReplayResult, correction: Correction | None) -> None:
    stream = result.stream
    if correction:
        click.echo(f"with the correction:\n{_indented(correction.text)}")
    if result.unreadable and not result.selected and not result.dry_run:
        click.echo(f"{stream}: no readable dead letter fits the selection; nothing was changed")
    else:
        click.echo(result.sentence)
    if not result.selected and not result.unreadable:
        return
    for sentence in result.details:
        click.echo(f"  {sentence}")
    if result.dry_run and result.replayed:
        click.echo(f"  Next: frazil replay {stream} … without --dry-run")
    elif result.failed:
        click.echo(f"  Next: frazil letters {stream}")


def _print_return(result: ReturnResult) -> None:
    stream, dead_letters = result.stream, f"{result.selected:,} dead letters"
    if result.recovered:
        click.echo(f"{stream}: {result.recovered:,} dead letters of an interrupted replay are marked as replayed")
    went = "would go" if result.dry_run else "went"
    nothing = "; nothing was changed" if result.dry_run else f" ({result.replay})"
    click.echo(f"{stream}: {result.returned:,} records of {dead_letters} {went} to {result.topic}{nothing}")
    for why, count in sorted(result.left.items()):
        click.echo(f"  {count:,} dead letters are left as they are: {why}")
    for problem in result.problems:
        click.echo(f"  {problem}")
    if result.dry_run and result.returned:
        click.echo(f"  Next: frazil replay {stream} --to-topic {result.topic} … without --dry-run")


def _print_queue(result: QueueResult, letters: str) -> None:
    if not result.read:
        click.echo(f"{result.stream}: nothing new in {result.topic}")
        return
    lands, becomes = ("would land", "would become") if result.dry_run else ("landed", "became")
    nothing = "; nothing was changed" if result.dry_run else ""
    click.echo(f"{result.stream}: of {result.read:,} records of {result.topic} {result.landed:,} {lands}{nothing}")
    for count, what in (
        (result.dead, f"{becomes} dead letters in {letters}"),
        (result.known, "are in the tables already"),
        (result.without_coordinates, "of these dead letters do not name their coordinates"),
        (result.left, "are left to the stream, which reads them itself"),
        (result.tombstones, "have no value, and land no row"),
    ):
        if count:
            click.echo(f"  {count:,} {what}")
    left_out = left_out_sentences(result.null_columns, result.unknown_fields)
    for sentence in (*left_out, *(each.sentence for each in result.reasons)):
        click.echo(f"  {sentence}")
    if result.dry_run:
        click.echo(f"  Next: frazil replay {result.stream} --from-topic {result.topic}")
    elif result.dead:
        click.echo(f"  Next: frazil letters {result.stream}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
