"""Command `frazil tag`: names snapshots of a stream's table, and keeps them from expiry."""

from __future__ import annotations

from typing import Any

import click
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.config.documents.units import parse_duration
from jobs.proof.lookup.python_code import python_code
from jobs.proof.lookup.reading import reading, spark_sql
from jobs.proof.lookup.record_lookup import look_up_record
from jobs.proof.lookup.snapshot_lookup import look_up_instant
from jobs.proof.lookup.stream_tables import StreamTables, load_stream_tables
from jobs.proof.lookup.tags import (
    Tag,
    check_tag_name,
    delete_tag,
    existing_tag,
    tag_snapshot,
    tags_of,
)
from jobs.tables.commit.stamp.offsets import TopicPartition
from orchestration.cli.common.catalogs import opened_catalog
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument
from orchestration.cli.common.snapshot_selection import (
    SnapshotSelection,
    parse_snapshot_selection,
    selecting_snapshot,
)
from orchestration.cli.common.terminal import current_user, print_columns, print_json
from resources.deployment import Deployment


@click.command()
@stream_argument()
@click.argument("name", required=False)
@selecting_snapshot
@click.option("--keep", metavar="TIME", help="How long from now on, such as 90d.  [default: until it is deleted]")
@click.option("--note", default="", metavar="WHY", help="Why; kept with the tag, and shown by maintenance.")
@click.option("--list", "listed", is_flag=True, help="Show the table's tags.")
@click.option("--delete", "deleted", is_flag=True, help="Delete the tag NAME; its snapshot expires as others do.")
@dry_run_option()
@json_option()
@click.pass_obj
def tag(
    deployment: Deployment,
    stream: str,
    name: str | None,
    keep: str | None,
    note: str,
    listed: bool,
    deleted: bool,
    dry_run: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Tag a snapshot of STREAM's table with NAME, for readers such as Spark, and keep it from expiry.

    The default is the newest snapshot. --offset names the snapshot that has the record, --timestamp the first that is
    complete up to it by the records' time, --snapshot one by its id. The stream may run meanwhile. A name that another
    snapshot has is refused.
    """
    fix = f"frazil tag {stream} NAME, with --list, or NAME with --delete"
    spec, settings = deployment.stream(stream), deployment.settings()
    selection = parse_snapshot_selection(spec, fix, **selected)
    _refuse_mixed(selection, name, fix, listed=listed, deleted=deleted, makes=keep is not None or bool(note))
    length = _duration(keep, stream)
    if name is not None and not deleted:
        check_tag_name(name)
    with translate_errors(settings, stream), opened_catalog(settings, stream) as catalog:
        tables = load_stream_tables(spec, settings, catalog, asked=selection.table, branch=selection.branch)
        table = tables.table.target.name
        if listed or name is None:
            _list(table, tags_of(tables.table.table.metadata), as_json=as_json)
            return
        if deleted:
            listing = f"frazil tag {stream} --list{f' --table {table}' if selection.table else ''}"
            if dry_run:
                gone = existing_tag(catalog, table, name, fix=listing)
                said = f"{table}: tag {name} would be deleted. Nothing was changed."
                print_json(_facts(table, gone) | {"deleted": False}) if as_json else click.echo(said)
                return
            gone = delete_tag(catalog, table, name, fix=listing)
            said = f"{table}: tag {name} is deleted; snapshot {gone.snapshot_id} expires as others do"
            print_json(_facts(table, gone) | {"deleted": True}) if as_json else click.echo(said)
            return
        if name == tables.table.target.branch:
            raise FrazilError(f"{name} is the branch that stream {stream} writes.", fix="another name")
        if dry_run:
            snapshot_id = _snapshot(tables, selection)
            if as_json:
                print_json({"table": table, "tag": name, "snapshot_id": snapshot_id, "changed": False})
            else:
                click.echo(f"{table}: snapshot {snapshot_id} would be tagged {name}. Nothing was changed.")
            return
        made, changed = _tagged(catalog, tables, selection, name, length, note)
    if as_json:
        print_json(_facts(table, made) | {"changed": changed})
        return
    click.echo(f"{table}: {made.reason}, as {name}{'' if changed else '; it was there already'}")
    click.echo(f"  Spark      {spark_sql(settings.catalog.name, table, None, [])} VERSION AS OF '{name}'")
    click.echo("  PyIceberg  this program:")
    click.echo(python_code(settings.catalog, table, f'scan().use_ref("{name}")'))


def _refuse_mixed(
    selection: SnapshotSelection, name: str | None, fix: str, *, listed: bool, deleted: bool, makes: bool
) -> None:
    if listed == (name is not None) or (listed and deleted):
        raise FrazilError("Give a name, or --list, or a name with --delete.", fix=fix)
    if (listed or deleted) and (makes or selection.given):
        raise FrazilError("--list and --delete go with nothing else.", fix=fix)


def _duration(text: str | None, stream: str) -> Any:
    try:
        length = parse_duration(text) if text is not None else None
    except (ValueError, OverflowError):
        length = text = ""
    if length == "" or (length is not None and length.total_seconds() <= 0):
        raise FrazilError("--keep: that is no time.", fix=f"frazil tag {stream} NAME --keep 90d")
    return length


def _tagged(
    catalog: Catalog, tables: StreamTables, selection: SnapshotSelection, name: str, keep: Any, note: str
) -> tuple[Tag, bool]:
    return tag_snapshot(
        catalog,
        tables.table.target.name,
        name,
        _snapshot(tables, selection),
        keep=keep,
        note=note,
        by=current_user(),
    )


def _snapshot(tables: StreamTables, selection: SnapshotSelection) -> int:
    """Id of the selected snapshot."""
    asked, stream = tables.table, tables.spec.stream
    if selection.snapshot_id is not None:
        found = tables.with_snapshot(selection.snapshot_id)
        if found is not None and found is not asked:
            raise FrazilError(
                f"snapshot {selection.snapshot_id} is of table {found.target.name}, and not of {asked.target.name}.",
                fix=f"frazil tag {stream} NAME --snapshot {selection.snapshot_id} --table {found.target.name}",
            )
        return selection.snapshot_id
    if selection.record is not None:
        return _snapshot_of_record(tables, *selection.record)
    if selection.instant is not None:
        found = look_up_instant(tables, selection.instant).complete
        if found is None:
            raise FrazilError(
                f"table {asked.target.name} is not complete through {selection.instant:%Y-%m-%d %H:%M:%S} UTC yet.",
                fix=f"frazil at {stream} --timestamp {selection.instant:%Y-%m-%dT%H:%M:%SZ}",
            )
        return found.snapshot_id
    head = asked.metadata.current_snapshot_id
    found_head = reading(asked.metadata, head, 0) if head is not None else None
    if found_head is None:
        raise FrazilError(f"table {asked.target.name} has no snapshot yet.", fix=f"frazil run {stream}")
    return found_head.snapshot_id


def _snapshot_of_record(tables: StreamTables, partition: TopicPartition, offset: int) -> int:
    """Id of the snapshot that landed a record in the selected table."""
    asked = tables.table
    answer = look_up_record(tables, partition, offset)
    place = answer.place_in(asked.target.name)
    elsewhere = [each.table.target.name for each in answer.places]
    commit = answer.letter_commit if asked is tables.dead else place.commit if place else None
    if commit is None and asked is tables.sink and not elsewhere:
        # The batch that read the record, whatever its outcome.
        commit = answer.landing
    if commit is None or commit.reading is None:
        where = f"--topic {partition.topic} --partition {partition.partition} --offset {offset}"
        said = (
            f"no snapshot of table {asked.target.name} has topic {partition.topic}, partition "
            f"{partition.partition}, offset {offset}"
        )
        if elsewhere and commit is None:
            raise FrazilError(
                f"{said}; it is a row of {' and '.join(elsewhere)}.",
                fix=f"frazil tag {tables.spec.stream} NAME {where} --table {elsewhere[0]}",
            )
        raise FrazilError(f"{said}.", fix=f"frazil at {tables.spec.stream} {where}")
    return commit.reading.snapshot_id


def _list(table: str, tags: list[Tag], *, as_json: bool) -> None:
    if as_json:
        print_json({"table": table, "tags": [_facts(table, each) for each in tags]})
        return
    if not tags:
        click.echo(f"no tags on {table}")
        return
    rows = [
        [
            each.name,
            str(each.snapshot_id),
            f"{each.committed_at:%Y-%m-%d %H:%M:%S}" if each.committed_at else None,
            f"{each.until:%Y-%m-%d %H:%M}" if each.until else "it is deleted",
            each.made.by if each.made else None,
            each.made.note if each.made else None,
        ]
        for each in tags
    ]
    names = ["tag", "snapshot", "committed", "kept until", "by", "note"]
    print_columns(names, rows, text=names)


def _facts(table: str, each: Tag) -> dict[str, Any]:
    return {
        "table": table,
        "tag": each.name,
        "snapshot_id": each.snapshot_id,
        "committed_at": each.committed_at.isoformat(timespec="milliseconds") if each.committed_at else None,
        "kept_until": each.until.isoformat(timespec="milliseconds") if each.until else None,
        "by": each.made.by if each.made else None,
        "note": (each.made.note or None) if each.made else None,
    }
