"""Command `frazil preview`: what one stream file makes of a topic's records, or how two files differ."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.config.documents.validation import shown_path
from jobs.config.settings.loading import load_stream
from jobs.streaming.preview.difference import difference
from jobs.streaming.preview.run import MOST_RECORDS
from jobs.streaming.preview.run import preview as run
from jobs.tables.dead_letter_table.selection import parse_offsets
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_json, progress_bar
from orchestration.cli.stream_files.preview.output import (
    STATUS,
    difference_facts,
    preview_facts,
    print_difference,
    print_preview,
)
from resources.deployment import Deployment

_LAST = 1_000


@click.command()
@stream_argument()
@click.option(
    "--last",
    type=click.IntRange(1, MOST_RECORDS),
    metavar="N",
    help=f"The newest N records, of all partitions alike; {_LAST:,} if nothing is said.",
)
@click.option("--offsets", "offsets", multiple=True, metavar="T:P:A-B", help="TOPIC, TOPIC:3 or TOPIC:3:17-42.")
@click.option(
    "--rows", type=click.IntRange(0), default=5, show_default=True, help="Show so many rows, and as many dead letters."
)
@click.option(
    "--diff",
    "other",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="OTHER.yaml",
    help="Show what would change with this file instead.",
)
@json_option()
@click.pass_context
def preview(
    ctx: click.Context,
    stream: str,
    last: int | None,
    offsets: tuple[str, ...],
    rows: int,
    other: Path | None,
    as_json: bool,
) -> None:
    """Show what STREAM would make of records in its topics: rows, dead letters, tables and files.

    Nothing is written, no position moves, and the stream may run meanwhile. With --diff the same records go through
    another file as well: status 0 if nothing would change, 3 if rows would, 4 if records that land now would be lost.
    """
    if last is not None and offsets:
        raise FrazilError("--last and --offsets both say which records are meant.", fix=f"frazil preview {stream}")
    deployment: Deployment = ctx.obj
    specs = [deployment.stream(stream), *([load_stream(other)] if other else [])]
    files = [deployment.file_of(stream), *([other] if other else [])]
    settings = deployment.settings()
    selections = [parse_offsets(each) for each in offsets]
    with translate_errors(settings, stream), progress_bar() as progress:
        progress.add_task(f"preview {stream}", total=None)
        found = run(specs, settings, last=last or _LAST, selections=selections)
    names = [shown_path(each) for each in files]
    if other is None:
        if as_json:
            print_json(preview_facts(found.streams[0], names[0], found.ranges, rows))
        else:
            print_preview(found.streams[0], names[0], found.ranges, rows)
        return
    now, then = found.streams
    changed = difference(now, then)
    if as_json:
        print_json(difference_facts(now, then, names, found.ranges, changed, rows))
    else:
        print_difference(now, then, names, found.ranges, changed, rows)
    ctx.exit(STATUS[changed.verdict])
