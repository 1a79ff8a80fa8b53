"""`frazil compare`: rows that a stream would make beside the rows that a sink has made of the same records."""

from __future__ import annotations

from datetime import datetime

import click
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.migration.comparison.run import MOST_RECORDS, Request, compare_with_table
from jobs.migration.comparison.sink_rows import parse_coordinates
from orchestration.cli.common.catalogs import SINK_CATALOG, opened_catalog
from orchestration.cli.common.durations import TimeOption
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_json, progress_bar
from orchestration.cli.connect.compare.output import comparison_facts, print_comparison
from resources.deployment import Deployment

DIFFERENT = 3
_LAST = 10_000


@click.command()
@stream_argument()
@click.option("--with", "table", required=True, metavar="TABLE", help="The table to compare with.")
@click.option("--branch", default=MAIN_BRANCH, show_default=True, metavar="B", help="Branch of that table.")
@click.option(
    "--last",
    type=click.IntRange(1, MOST_RECORDS),
    metavar="N",
    help=f"The newest N records, of all partitions alike.  [default: {_LAST:,}]",
)
@click.option("--since", type=TimeOption(past=True), help="Records since: 24h, 2026-01-31, 2026-01-31T08:00Z.")
@click.option("--key", metavar="A,B", help="Columns to match rows by.  [default: the identifier fields]")
@click.option("--coordinates", metavar="COLUMNS", help="As topic=a,partition=b,offset=c.  [default: found by name]")
@click.option("--output", metavar="TABLE", help="Which of the stream's tables is compared.  [default: its main table]")
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="So many of each difference.")
@json_option()
@click.pass_context
def compare(
    ctx: click.Context,
    stream: str,
    table: str,
    branch: str,
    last: int | None,
    since: datetime | None,
    key: str | None,
    coordinates: str | None,
    output: str | None,
    examples: int,
    as_json: bool,
) -> None:
    """Compare the rows that STREAM would make of its topics' records with the rows of TABLE.

    Records go through the stream's pipeline, as in a preview: nothing is written, and the stream may run. Rows are
    matched by topic, partition and offset if TABLE has them, else by key columns, else as whole rows. Differences are
    counted by column and reason.

    The exit status is 0 if the rows are equal, and 3 if any differ. Schemas, partitioning and other settings of the
    tables are shown beside each other; they change no status.
    """
    if last is not None and since is not None:
        raise FrazilError(
            "--last and --since both say which records are meant.", fix=f"frazil compare {stream} --with {table}"
        )
    deployment: Deployment = ctx.obj
    request = Request(
        table,
        branch,
        output,
        last or _LAST,
        since,
        parse_coordinates(coordinates) if coordinates else {},
        tuple(each.strip() for each in key.split(",")) if key else (),
        examples,
    )
    spec, settings = deployment.stream(stream), deployment.settings()
    with (
        translate_errors(settings, stream),
        opened_catalog(settings, stream, fix=SINK_CATALOG) as catalog,
        progress_bar("{task.completed:,.0f} of {task.total:,.0f} records", bar=True) as progress,
    ):
        task = progress.add_task(f"compare {stream}", total=None)

        def read(records: int, total: int) -> None:
            progress.update(task, advance=records, total=total)

        found = compare_with_table(spec, settings, catalog, request, read)
    if as_json:
        print_json(comparison_facts(found))
    else:
        print_comparison(found)
    if found.verdict != "equal":
        ctx.exit(DIFFERENT)
