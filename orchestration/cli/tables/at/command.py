"""Command `frazil at`: the snapshot of a record, a row or an instant, its origin, and queries that read it."""

from __future__ import annotations

from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.state_store.epochs import has_exact_file, read_file
from jobs.proof.lookup.reading import spark_sql
from jobs.proof.lookup.record_lookup import look_up_record
from jobs.proof.lookup.snapshot_lookup import look_up_instant, look_up_snapshot
from jobs.proof.lookup.source_record import source_logs
from jobs.proof.lookup.stored_rows import rows_at
from jobs.proof.lookup.stream_tables import StreamTables, load_stream_tables
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.common.catalogs import opened_catalog
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.snapshot_selection import (
    SnapshotSelection,
    parse_snapshot_selection,
    selecting_snapshot,
)
from orchestration.cli.common.terminal import print_json
from orchestration.cli.tables.at.output import (
    instant_facts,
    print_instant,
    print_record,
    print_snapshot,
    record_facts,
    snapshot_facts,
)
from resources.deployment import Deployment

_MOST_ROWS = 5


@click.command()
@stream_argument()
@selecting_snapshot
@click.option("--row", metavar="FILTER", help="Rows, by Iceberg's row filter, such as \"id = 'p-17'\".")
@click.option(
    "--config",
    "show_config",
    is_flag=True,
    help="Print the stream's file as it was then.",
)
@json_option()
@click.pass_obj
def at(deployment: Deployment, stream: str, row: str | None, show_config: bool, as_json: bool, **selected: Any) -> None:
    """Find the outcome of a record of STREAM: the snapshot that landed it, the process that did, and how to read it.

    A record is named by --topic, --partition and --offset. --row finds the records of rows; --timestamp the snapshots
    of an instant, by the records' time and by the commits'; --snapshot shows the contents of a snapshot. Works for
    expired snapshots, too, by the ledger. Reads only.
    """
    fix = f"frazil at {stream} --partition 0 --offset 17, or --timestamp, --snapshot or --row"
    spec, settings = deployment.stream(stream), deployment.settings()
    selection = parse_snapshot_selection(spec, fix, **selected)
    if selection.given == (row is not None):
        raise FrazilError("Name a record, a row, a time or a snapshot: one of them.", fix=fix)
    with translate_errors(settings, stream), opened_catalog(settings, stream) as catalog:
        tables = load_stream_tables(spec, settings, catalog, asked=selection.table, branch=selection.branch)
        found = _found(tables, selection, row)
    if show_config:
        _print_config(tables, found)
    elif as_json:
        print_json(found[0] if row is None else found)
    else:
        for number, facts in enumerate(found):
            click.echo() if number else None
            _print(stream, facts)


def _found(tables: StreamTables, selection: SnapshotSelection, row: str | None) -> list[dict[str, Any]]:
    if selection.snapshot_id is not None:
        tables = _having(tables, selection)
        facts = snapshot_facts(tables, look_up_snapshot(tables, selection.snapshot_id))
        return [facts] if facts else []
    if selection.instant is not None:
        return [instant_facts(tables, look_up_instant(tables, selection.instant))]
    records = [selection.record] if selection.record else _records(tables, selection, row or "")
    logs = source_logs(tables.settings.kafka, [partition for partition, _ in records])
    return [record_facts(tables, look_up_record(tables, *each), logs) for each in records]


def _having(tables: StreamTables, selection: SnapshotSelection) -> StreamTables:
    """Tables with the snapshot's table as the selected one, unless the command names a table."""
    if selection.snapshot_id is None or selection.table is not None:
        return tables
    found = tables.with_snapshot(selection.snapshot_id)
    if found is not None:
        return tables.asking(found.target.name)
    # The snapshot has expired, but the ledger names its table.
    uuids = {row.table_uuid for row in tables.recorded.of_snapshot(selection.snapshot_id)}
    whose = [each.target.name for each in tables.every if each.uuid in uuids]
    return tables.asking(whose[0]) if whose else tables


def _records(tables: StreamTables, selection: SnapshotSelection, row: str) -> list[tuple[TopicPartition, int]]:
    """Distinct records of the rows that match, in the named table or in all tables with rows."""
    asked = [tables.table] if selection.table is not None else list(tables.of_rows)
    records: list[tuple[TopicPartition, int]] = []
    several = len(asked) > 1
    for looked_at in asked:
        rows = rows_at(tables, looked_at, row, _MOST_ROWS + 1)
        records = list(dict.fromkeys([*records, *((partition, offset) for partition, offset, _ in rows)]))
        if len(rows) > _MOST_ROWS or len(records) > _MOST_ROWS:
            raise FrazilError(
                f"more than {_MOST_ROWS} rows of {_told(tables, several=several)} fit {row}.",
                fix="say more, such as with `and`, of the row",
            )
    if not records:
        written = spark_sql(tables.settings.catalog.name, asked[0].target.name, None, [])
        raise FrazilError(
            f"no row of {_told(tables, several=several)} fits {row}.",
            fix=f"see the values in rows: {written} LIMIT 10; or, if the record is a dead letter, frazil letters "
            f"{tables.spec.stream}",
        )
    return records


def _told(tables: StreamTables, *, several: bool) -> str:
    return f"the tables of stream {tables.spec.stream}" if several else f"table {tables.table.target.name}"


def _print(stream: str, facts: dict[str, Any]) -> None:
    if "fate" in facts:
        print_record(facts)
    elif "timestamp" in facts:
        print_instant(facts)
    else:
        print_snapshot(stream, facts)


def _print_config(tables: StreamTables, found: list[dict[str, Any]]) -> None:
    """Print the stored copy of the stream's file that was in effect at the commit.

    Raises:
        FrazilError: No commit of the stream was found, or no copy of the file is stored.
    """
    first = found[0]
    commit = first.get("landing") if "fate" in first else first.get("complete") if "timestamp" in first else first
    if not commit or not commit["config_hash"]:
        raise FrazilError("nothing that the stream made was found, so there is no file.", fix="frazil at --help")
    config, generation = commit["config_hash"], commit["generation"] or ""
    text = read_file(tables.store, config, generation)
    if text is None:
        stream = tables.spec.stream
        raise FrazilError(
            f"the file of stream {stream} with the configuration {config} is not kept: it ran before files were kept, "
            "or the state folder is new.",
            fix=f"git log -p -- streams/{stream}.yaml, around {commit['committed_at']}",
        )
    if not has_exact_file(tables.store, config, generation):
        click.echo(f"# The file that made the same rows; that of generation {generation} is not kept.", err=True)
    click.echo(text, nl=not text.endswith("\n"))
