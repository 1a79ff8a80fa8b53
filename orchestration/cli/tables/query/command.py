"""Command `frazil query`: rows of a stream's tables by SQL, read only and without Spark."""

from __future__ import annotations

import contextlib

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from orchestration.cli.tables.at.command import opened_catalog
from orchestration.cli.tables.query.output import print_as_csv, print_as_json, print_as_table
from orchestration.cli.tables.query.stream_views import DEAD_LETTERS, ROWS, Selection, StreamViews
from resources.deployment import Deployment

_FIRST_ROWS = 20


@click.command()
@click.argument("stream")
@click.argument("sql", required=False)
@click.option("--where", metavar="FILTER", help="Iceberg's filter, such as \"id = 'p-17'\"; skips files without rows.")
@click.option("--dead-letters", is_flag=True, help="The dead letters in place of the rows.")
@click.option("--branch", metavar="B", help="Branch of the table.  [default: the one that readers see]")
@click.option("--snapshot", "snapshot_id", type=int, metavar="ID", help="Snapshot of the table.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help=f"Rows at most; without SQL {_FIRST_ROWS} by default."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; decimals are texts.")
@click.pass_obj
def query(
    deployment: Deployment,
    stream: str,
    sql: str | None,
    where: str | None,
    dead_letters: bool,
    branch: str | None,
    snapshot_id: int | None,
    limit: int | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show the first rows of STREAM's table, or what SQL makes of its tables.

    SQL is DuckDB's. The main table is `rows`, the dead letters are `dead_letters`, and each table of the stream has its
    own name as well. --where, --branch and --snapshot are about the main table, or, with --dead-letters, about the dead
    letters. Nothing can be written, and times are in UTC.

    \b
      frazil query payments
      frazil query payments "SELECT currency, sum(amount) FROM rows GROUP BY ALL"
      frazil query payments --dead-letters --where "state = 'new'" --limit 3
    """
    if as_csv and as_json:
        raise FrazilError("--csv and --json are two formats.", fix=f"frazil query {stream} --json")
    if branch is not None and snapshot_id is not None:
        raise FrazilError(
            "--branch and --snapshot both say which rows are meant.", fix=f"frazil query {stream} --branch {branch}"
        )
    limit = limit or (None if sql else _FIRST_ROWS)
    spec, settings = deployment.stream(stream), deployment.settings()
    role = DEAD_LETTERS if dead_letters else ROWS
    # Without SQL the scan itself stops at the limit. With SQL, any row may count.
    selection = Selection(role, branch, snapshot_id, where, None if sql else limit)
    with (
        translate_errors(settings, stream),
        opened_catalog(settings, stream) as catalog,
        contextlib.closing(StreamViews(spec, settings, catalog, selection)) as views,
    ):
        reader = views.query(sql or f"SELECT * FROM {role}")
        with reader:
            if as_json:
                print_as_json(reader, limit, {"stream": stream, "table": views.asked, "sql": sql})
            elif as_csv:
                print_as_csv(reader, limit)
            else:
                print_as_table(reader, limit)
