"""Commands `frazil mirror …`: merge, rebuild and compare the mirrors of a stream's source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.system.signals import deferred_signals
from jobs.clients.catalog.catalog import NoCatalogYet, quick_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.install.artifacts import resolve_jars
from jobs.clients.install.preflight import preflight
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.clients.spark.start import SessionOnDemand
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.check.consistency import Consistency, buckets_of_day, check_consistency
from jobs.mirrors.check.source_check import check_source
from jobs.mirrors.check.source_report import SourceConsistency
from jobs.mirrors.model.errors import KeylessChangelogError
from jobs.mirrors.model.merge_plan import MirrorState
from jobs.mirrors.run.accepting import accept_new_generation
from jobs.mirrors.run.merging import Merged
from jobs.mirrors.run.mirror_run import (
    IncrementMerger,
    chosen_mirrors,
    rebuild_mirror,
    run_mirror,
)
from jobs.mirrors.run.mirror_status import mirror_status
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.common.consent import consent, consent_with_reason, show_plan
from orchestration.cli.common.durations import seconds_of
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.progress import CommandProgress
from orchestration.cli.common.terminal import (
    current_user,
    print_error,
    print_json,
    progress_bar,
    stderr_console,
)
from orchestration.cli.tables.mirror.output import (
    accepted_facts,
    accepted_lines,
    checked_facts,
    checked_lines,
    merged_facts,
    merged_lines,
    source_agrees,
    status_facts,
    status_lines,
)
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.group()
def mirror() -> None:
    """Merge a stream's changes into its mirrors, and show their progress."""


@mirror.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only the mirror of this name.")
@click.option("--rebuild", is_flag=True, help="Rebuild it from the whole changelog, as `frazil mirror rebuild` does.")
@dry_run_option("Show how many changes would be merged, and change nothing.")
@json_option()
@click.pass_obj
def run(deployment: Deployment, stream: str, table: str | None, rebuild: bool, dry_run: bool, as_json: bool) -> None:
    """Merge new changes in the changelog of STREAM into its mirrors.

    Each mirror gets one commit, so readers see all of a merge or nothing. The stream may land meanwhile. Spark starts
    only if a merge needs it. The exit status is 1 if a mirror could not be merged; the others are merged nevertheless.
    """
    if dry_run:
        _show_merge_plan(deployment, stream, table, rebuild=rebuild, as_json=as_json)
        return
    _merge(deployment, stream, table, rebuild=rebuild, incomplete=False, as_json=as_json)


@mirror.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only the mirror of this name.")
@click.option("--incomplete", is_flag=True, help="Also where the changelog lacks rows that were landed there.")
@dry_run_option("Show which mirrors would be rebuilt, and change nothing.")
@yes_option("With --incomplete: do it without a question; needed where no terminal can ask.")
@json_option()
@click.pass_obj
def rebuild(
    deployment: Deployment, stream: str, table: str | None, incomplete: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Rebuild mirrors of STREAM from its whole changelog. Readers see each new mirror after one commit."""
    if dry_run:
        _show_merge_plan(deployment, stream, table, rebuild=True, as_json=as_json)
        return
    if incomplete:
        consent("Rebuild them even if the changelog lacks rows, which the mirrors then lack too?", yes=yes)
    _merge(deployment, stream, table, rebuild=True, incomplete=incomplete, as_json=as_json)


@mirror.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only the mirror of this name.")
@json_option()
@click.pass_obj
def status(deployment: Deployment, stream: str, table: str | None, as_json: bool) -> None:
    """Show how far the mirrors of STREAM are merged (offsets, position, time), and what they lack."""
    spec, settings = deployment.stream(stream), deployment.settings()
    with translate_errors(settings, stream), _opened(settings, stream) as catalog:
        chosen = chosen_mirrors(spec, catalog, table)
        found = [(of, mirror_status(of, each, settings, catalog)) for of, each in chosen]
    if as_json:
        print_json({"stream": stream, "mirrors": [status_facts(of, each) for of, each in found]})
        return
    for of, each in found:
        for line in status_lines(of, each):
            click.echo(line)


@mirror.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only the mirror of this name.")
@click.option("--part", is_flag=True, help="Look at an eighth of the keys, another one each day.")
@click.option(
    "--wait",
    callback=seconds_of,
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="How long rows that disagree with the source are looked at again, as changes come in.",
)
@json_option()
@click.pass_obj
def check(deployment: Deployment, stream: str, table: str | None, part: bool, wait: float, as_json: bool) -> None:
    """Compare the mirrors of STREAM, row by row, with the result of the changes in its changelog.

    A mirror whose file names a source is compared with the source's table, too. The stream may land and merge
    meanwhile. The mirror's newest merge is compared with that merge's snapshot of the changelog, and with the present
    source. The exit status is 1 if rows disagree.
    """
    spec, settings = deployment.stream(stream), deployment.settings()
    session = SessionOnDemand(lambda: _start_spark(settings), again=False)
    buckets = buckets_of_day(datetime.now(UTC).date()) if part else None
    found: list[tuple[StreamSpec, Mirror, Consistency | None, SourceConsistency | FrazilError | None]] = []
    try:
        with translate_errors(settings, stream), _opened(settings, stream) as catalog, _progress() as progress:
            chosen = chosen_mirrors(spec, catalog, table)
            task = progress.add_task("compare", total=len(chosen))
            for of, each in chosen:
                progress.update(task, description=f"compare {each.table}")
                done = check_consistency(of, each, settings, catalog, session.get, buckets)
                progress.update(task, description=f"compare {each.table} with its source")
                try:
                    source = check_source(of, each, settings, catalog, session.get, buckets, wait)
                except FrazilError as problem:
                    # The comparison with the changelog is shown even if the source does not answer.
                    source = problem
                found.append((of, each, done, source))
                progress.advance(task)
    finally:
        end_spark()
    if as_json:
        print_json({"stream": stream, "mirrors": [checked_facts(each, done, its) for _, each, done, its in found]})
    else:
        for of, each, done, its in found:
            for line in checked_lines(of, each, done, its):
                click.echo(line)
    for problem in [its for *_, its in found if isinstance(its, FrazilError)]:
        print_error(problem)
    if any((done and done.wrong) or not source_agrees(its) for _, _, done, its in found):
        raise SystemExit(1)


@mirror.command()
@stream_argument()
@click.option("--table", metavar="TABLE", help="Only the mirror of this name.")
@click.option("--new-generation", is_flag=True, help="The source was restored: its positions start again.")
@click.option(
    "--at",
    "places",
    multiple=True,
    metavar="TOPIC:PARTITION:OFFSET",
    help="The first change after the restore, from the error; without it all changes that the mirror lacks.",
)
@click.option("--reason", help="Kept in the mirror's stamp, with your name; asked for if it is not given.")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def accept(
    deployment: Deployment,
    stream: str,
    table: str | None,
    new_generation: bool,
    places: tuple[str, ...],
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Answer the stop of a mirror of STREAM whose source went back to lower positions.

    From those offsets on, changes in the changelog then count as later than all before them, whatever their positions,
    also in a rebuild. Nothing is merged yet: the next `frazil mirror run` does that. Shows the answer and asks: it
    cannot be undone.
    """
    if not new_generation:
        raise FrazilError(
            "An answer is needed: --new-generation.", fix=f"frazil mirror accept {stream} --new-generation"
        )
    spec, settings = deployment.stream(stream), deployment.settings()
    at = dict(_place(stream, each) for each in places)

    def answer(note: str, *, dry_run: bool) -> list[tuple[StreamSpec, Mirror, MirrorState]]:
        with translate_errors(settings, stream), _opened(settings, stream) as catalog:
            answers = [
                (of, each, accept_new_generation(of, each, settings, catalog, note, at, dry_run=dry_run))
                for of, each in chosen_mirrors(spec, catalog, table)
            ]
        return [(of, each, state) for of, each, state in answers if state is not None]

    accepted = answer("", dry_run=True)
    if not accepted:
        topics = ", ".join(sorted({partition.topic for partition in at}))
        raise FrazilError(f"stream {stream}: no mirror has changes of {topics}.", fix=f"frazil mirror status {stream}")
    if not dry_run:
        # The last line, the next command, follows only after the answer.
        show_plan((line for each in accepted for line in [*accepted_lines(*each)][:-1]), as_json=as_json)
        why = consent_with_reason(f"Let positions of the source of {stream} start again there?", yes=yes, reason=reason)
        accepted = answer(f"{current_user()}: {why}", dry_run=False)
    if as_json:
        mirrors = [accepted_facts(each, state) for _, each, state in accepted]
        print_json({"stream": stream, "done": not dry_run, "mirrors": mirrors})
        return
    for each in accepted:
        for line in [*accepted_lines(*each)][: -1 if dry_run else None]:
            click.echo(line)
    if dry_run:
        click.echo("Nothing was changed.")


def _show_merge_plan(deployment: Deployment, stream: str, table: str | None, *, rebuild: bool, as_json: bool) -> None:
    """Show the effect of a merge from the metadata of the tables."""
    spec, settings = deployment.stream(stream), deployment.settings()
    with translate_errors(settings, stream), _opened(settings, stream) as catalog:
        found = [(of, mirror_status(of, each, settings, catalog)) for of, each in chosen_mirrors(spec, catalog, table)]
    if as_json:
        mirrors = [
            {"table": each.table, "changelog": of.table.name, "rebuild": rebuild, "changes": each.lag_rows}
            | {"problem": each.problem and each.problem.message}
            for of, each in found
        ]
        print_json({"stream": stream, "done": False, "mirrors": mirrors})
        return
    for of, each in found:
        changes = "an unknown number of" if each.lag_rows is None else f"{each.lag_rows:,}"
        click.echo(
            f"Mirror {each.table} would be rebuilt from the whole changelog {of.table.name}."
            if rebuild
            else f"Mirror {each.table} would get {changes} changes of changelog {of.table.name}."
        )
        if each.problem is not None:
            click.echo(f"  But: {each.problem.message}")
    click.echo("Nothing was changed.")


def _place(stream: str, text: str) -> tuple[TopicPartition, int]:
    topic, _, rest = text.rpartition(":")[0].rpartition(":")
    offset = text.rpartition(":")[2]
    if not topic or not rest.isdigit() or not offset.isdigit():
        raise FrazilError(
            f"--at {text} is no place in a topic: it is TOPIC:PARTITION:OFFSET.",
            fix=f"frazil mirror accept {stream} --new-generation --at customers:0:1234",
        )
    return TopicPartition(topic, int(rest)), int(offset)


def _merge(
    deployment: Deployment, stream: str, table: str | None, *, rebuild: bool, incomplete: bool, as_json: bool
) -> None:
    spec, settings = deployment.stream(stream), deployment.settings()
    session = SessionOnDemand(lambda: _start_spark(settings), again=False)
    merger = IncrementMerger(settings, session.get)
    merged: list[tuple[StreamSpec, Mirror, Merged]] = []
    problems: list[FrazilError] = []
    try:
        with _opened(settings, stream) as catalog, _progress() as progress:
            chosen = chosen_mirrors(spec, catalog, table)
            task = progress.add_task("merge", total=len(chosen))
            for of, each in chosen:
                progress.update(task, description=f"merge into {each.table}")
                try:
                    with translate_errors(settings, stream):
                        if rebuild:
                            done = rebuild_mirror(of, each, settings, catalog, merger, incomplete=incomplete)
                        else:
                            done = run_mirror(of, each, settings, catalog, merger)
                    merged.append((of, each, done))
                except FrazilError as problem:
                    problems.append(problem)
                progress.advance(task)
    finally:
        end_spark()
    if as_json:
        print_json({"stream": stream, "mirrors": [merged_facts(of, each, done) for of, each, done in merged]})
    else:
        for of, each, done in merged:
            for line in merged_lines(of, each, done):
                click.echo(line)
    for problem in problems:
        print_error(problem)
    # A captured database may have tables without keys. Their mirrors are reported, but do not fail a run of all.
    if any(table is not None or len(chosen) == 1 or not isinstance(each, KeylessChangelogError) for each in problems):
        raise SystemExit(1)


@contextlib.contextmanager
def _opened(settings: Settings, stream: str) -> Iterator[Catalog]:
    try:
        catalog = quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=f"frazil run {stream}") from None
    with catalog:
        yield catalog


def _start_spark(settings: Settings) -> SparkSession:
    preflight()
    console = stderr_console()
    resolve_jars("spark", on_progress=lambda line: console.print(line, markup=False))
    log = settings.state / "spark" / "mirror.log"
    with deferred_signals():
        return start_session(settings, "frazil mirror", work="sql", output=log)


def _progress() -> CommandProgress:
    return progress_bar("{task.completed:,.0f} of {task.total:,.0f} mirrors", bar=True)
