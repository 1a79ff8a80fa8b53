"""Command `frazil schema apply`: changes a stream's table by its file or by schema change proposals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import click
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import evolving_schema
from jobs.quality.schema_checks.alteration import (
    Alteration,
    alter_table,
    altered_metadata,
    declared_alteration,
    file_alteration,
    proposed_alteration,
    renaming_alteration,
)
from jobs.quality.schema_checks.declared import schema_name
from jobs.records.schema.difference import RenamedColumn
from jobs.records.schema.evolution import Fitting
from jobs.streaming.driver.tables.schema_proposals import SchemaProposal, forget_proposal, proposals
from jobs.tables.write.table_creation import refuse_format
from jobs.tables.write.table_remaking import is_as_made
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.terminal import current_user, print_json
from orchestration.cli.stream_files.schema.adopt import adopt_tables
from orchestration.cli.stream_files.schema.promote import promote_field
from orchestration.cli.stream_files.schema.tables import (
    Answer,
    apply_to_tables,
    behind_own,
    follow_own,
    followers_of,
    has_several,
    of_asked_table,
    print_behind,
    read_renames,
    refuse_behind,
    refuse_renames,
    refuse_unknown,
    stream_table,
)
from resources.deployment import Deployment


@click.command()
@stream_argument()
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    callback=read_renames,
    help="Give a column another name; rows keep it.",
)
@click.option("--proposal", "digests", multiple=True, metavar="ID", help="Make this proposed change only.")
@click.option("--promote", "field", metavar="PATH", help="Make a column of a field that is kept in _extra: '$.a.b'.")
@click.option("--as", "kind", metavar="TYPE", help="The type of that column, instead of the one that is proposed.")
@click.option("--backfill", is_flag=True, help="Fill that column in existing rows, too.")
@click.option("--table", metavar="NAME", help="The table, if the stream's tables have columns of their own.")
@click.option(
    "--adopt",
    "adopted",
    multiple=True,
    metavar="TABLE",
    help="Give the stream a table that exists and that route.to names: its name, or a pattern such as 'events.*'.",
)
@dry_run_option("Show the change, and make none.")
@yes_option()
@json_option("Print the facts as one JSON document; asks nothing.")
@click.pass_obj
def apply(
    deployment: Deployment,
    stream: str,
    renames: tuple[RenamedColumn, ...],
    digests: tuple[str, ...],
    field: str | None,
    kind: str | None,
    backfill: bool,
    table: str | None,
    adopted: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Change the table of STREAM so that it takes the file's columns, or by a proposal.

    A table that frazil did not create gets the Kafka columns, which name a row's record.

    If the stream has a route, or a table of late rows, each of its tables is changed, in one commit each.

    Shows the change and asks. Columns are added, types widened as Iceberg allows, and required columns made optional.
    Nothing is dropped; only --rename renames. One commit does it, while the stream runs. Records with a column's former
    name still land in it.

    With --promote, a field of _extra becomes a column; with --backfill, earlier rows get it, too.
    """
    answer = Answer(yes=yes and not dry_run, dry_run=dry_run, as_json=as_json)
    if field is not None:
        if renames or digests or adopted:
            raise click.UsageError("--promote goes with --as and --backfill, not with --rename, --proposal or --adopt")
        promote_field(deployment, stream, field, kind, table, backfilling=backfill, answer=answer)
        return
    if kind is not None or backfill:
        raise click.UsageError("--as and --backfill go with --promote")
    if adopted:
        if renames or digests or table is not None:
            raise click.UsageError("--adopt goes without --rename, --proposal and --table")
        adopt_tables(deployment.stream(stream), deployment.settings(), adopted, answer)
        return
    if renames and digests:
        raise click.UsageError("--rename goes without --proposal")
    spec, settings = deployment.stream(stream), deployment.settings()
    if has_several(spec) and not digests:
        apply_to_tables(spec, settings, renames, answer)
        return
    store = stream_folder(settings, stream).store
    spec = of_asked_table(spec, settings, table or _proposed_table(store, digests))
    _apply(spec, settings, store, renames, digests, answer)


def _proposed_table(store: StateStore, digests: Sequence[str]) -> str | None:
    """Table of the first of these proposals; None if there is no such proposal."""
    return next((each.table for each in proposals(store) if each.digest in digests), None)


def _apply(
    spec: StreamSpec,
    settings: Settings,
    store: StateStore,
    renames: Sequence[RenamedColumn],
    digests: Sequence[str],
    answer: Answer,
) -> None:
    as_json = answer.as_json
    stream, table = spec.stream, stream_table(spec, settings)
    if table is not None:
        refuse_format(table.metadata, spec.table.name)
    schema = table.metadata.schema() if table is not None else None
    refuse_unknown(stream, renames, [spec.declared_rows, *([schema] if schema is not None else [])])
    chosen = _proposed(spec, store, evolving_schema(spec, table.metadata) if table is not None else None, digests)
    if renames:
        refuse_renames(spec)
    if table is None or (is_as_made(table.metadata, stream) and not spec.tables_follow):
        if as_json:
            schema_id = None if table is None else table.metadata.current_schema_id
            _told(stream, spec, schema_id, Alteration(), done=False, as_json=True)
        else:
            click.echo(f"{stream}: table {spec.table.name} has no rows; the next run makes it as the file declares.")
        return
    change, open_proposals = _change(spec, renames, chosen, table.metadata, by_id=bool(digests))
    shown = change(table.metadata)
    _refuse(spec, shown, proposed=bool(open_proposals))
    followers = followers_of(spec, settings)
    behind = behind_own(spec, altered_metadata(spec, table.metadata, shown), followers)
    refuse_behind(spec, behind)
    if not shown.sentences and not behind:
        _told(stream, spec, table.metadata.current_schema_id, shown, done=False, as_json=as_json)
        return
    if not as_json:
        if shown.sentences:
            click.echo(f"{stream}: table {spec.table.name} ({schema_name(table.metadata)}) is to change:")
        for sentence in shown.sentences:
            click.echo(f"  {sentence}")
        print_behind(spec, behind, followers)
        if shown.renames and spec.decode.declared is not None:
            click.echo("A driver that writes the old name ends with its next batch; the one of the file takes over.")
        for each in open_proposals:
            if each.rename:
                click.echo(f"{'.'.join(each.path)} may be the same under another name; then instead: {each.rename}")
    if not answer.asked("Change the tables?" if behind else "Change the table?"):
        if as_json:
            _told(stream, spec, table.metadata.current_schema_id, shown, behind, done=False, as_json=True)
        return
    made, done = table.metadata.current_schema_id, shown
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        if shown.sentences:
            made, done = alter_table(catalog, spec, change, table.metadata.current_schema_id, current_user())
        follow_own(catalog, spec, catalog.load_table(spec.table.name).metadata, behind)
    for proposal in open_proposals:
        forget_proposal(store, proposal.digest)
    _told(stream, spec, made, done, behind, done=True, as_json=as_json)


def _proposed(
    spec: StreamSpec, store: StateStore, table: Schema | None, digests: Sequence[str]
) -> list[SchemaProposal]:
    """Chosen open proposals: those named by digest, or all if no digest is named."""
    stream, known = spec.stream, proposals(store, table, spec.table.name)
    chosen = [each for each in known if not digests or each.digest in digests]
    if missing := sorted(set(digests) - {each.digest for each in chosen}):
        told = ", ".join(f"{each.digest} ({each.says})" for each in known) or "none"
        raise click.UsageError(
            f"stream {stream}: nothing is proposed under {', '.join(missing)}; open proposals: {told}."
        )
    return chosen


def _change(
    spec: StreamSpec,
    renames: Sequence[RenamedColumn],
    chosen: list[SchemaProposal],
    now: TableMetadata,
    *,
    by_id: bool,
) -> tuple[Callable[[TableMetadata], Alteration], list[SchemaProposal]]:
    """Function from the table's metadata to the alteration, and the proposals that the alteration applies."""
    if spec.decode.declared is not None and not by_id:
        return (lambda now: declared_alteration(spec, now, renames)), []
    if renames:
        return (lambda now: renaming_alteration(spec, now, renames)), []
    if not by_id and spec.chain and (by_file := file_alteration(spec, now)) and by_file.opening is not None:
        # The file's steps may change columns, so proposals apply after this alteration.
        return (lambda now: file_alteration(spec, now)), []
    changes = [each.as_change for each in chosen]
    return (lambda now: proposed_alteration(spec, now, changes)), chosen


def _refuse(spec: StreamSpec, shown: Alteration, *, proposed: bool) -> None:
    if not shown.refused:
        return
    if proposed:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} cannot be changed as is proposed: "
            + "; ".join(shown.refused)
            + ". Nothing was changed.",
            fix="choose others with --proposal",
        )
    if spec.decode.declared is None:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} is not changed: {'; '.join(shown.refused)}.",
            fix=f"correct streams/{spec.stream}.yaml first, or choose another name",
        )
    raise FrazilError(
        f"stream {spec.stream}: no change lets table {spec.table.name} take what the file declares: "
        + "; ".join(shown.refused)
        + ". Nothing was changed.",
        fix=f"correct streams/{spec.stream}.yaml, or name another table",
    )


def _told(
    stream: str,
    spec: StreamSpec,
    schema_id: int | None,
    made: Alteration,
    behind: Mapping[str, Fitting] = MappingProxyType({}),
    *,
    done: bool,
    as_json: bool,
) -> None:
    if as_json:
        facts = {"stream": stream, "table": spec.table.name, "schema_id": schema_id, "changes": made.sentences}
        if spec.tables_follow:
            facts["tables"] = [{"table": name, "changes": list(map(str, fit.changes))} for name, fit in behind.items()]
        print_json(facts | {"done": done})
    elif not made.sentences and not behind:
        click.echo(f"{stream}: nothing to change; table {spec.table.name} takes what the file declares.")
    else:
        after = "The file is rolled out by itself." if spec.decode.declared is not None else ""
        click.echo(f"Done: table {spec.table.name} has schema {schema_id}. {after}".rstrip())
        for name in behind:
            click.echo(f"Done: table {name} has its columns.")
        click.echo(f"  Next: frazil status {stream}")
