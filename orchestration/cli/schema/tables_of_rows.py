"""Tables of rows of a stream that has several, as `frazil schema` compares them with the file and changes them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import click
from pyiceberg.table import Table

from jobs.catalog import NoCatalogYet, connect_catalog, find_table, quick_catalog
from jobs.commit.named_tables import with_named_tables
from jobs.errors import FrazilError
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import of_table, topic_tables
from jobs.schema.difference import RenamedColumn
from jobs.schema.schema_change import columns_of
from jobs.schema_contract.alteration import Alteration, alter_table, declared_alteration
from jobs.schema_contract.declared import declared_columns, schema_name
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.translate import translate_errors
from jobs.write.table_remaking import is_as_made
from orchestration.cli.schema.renames import refuse_unknown
from orchestration.cli.terminal import current_user, print_json

_SHOWN = 20


def has_several(spec: StreamSpec) -> bool:
    """Whether a stream may have other tables of the rows that its file declares: those of a route, or of late rows."""
    return spec.decode.declares_all and (spec.route is not None or spec.late_table is not None)


def tables_of_rows(spec: StreamSpec, settings: Settings) -> dict[str, Table]:
    """Those with rows, by name, the stream's own first; the others are made anew by themselves.

    Raises:
        FrazilError: The catalog does not answer within seconds.
    """
    try:
        catalog = quick_catalog(settings)
        spec = with_named_tables(spec, catalog)
        names = [each.name for each in spec.targets if each.role == "rows"]
        found = {name: find_table(catalog, name, spec.branch_of(name)) for name in names}
    except NoCatalogYet:
        return {}
    return {
        name: table
        for name, table in found.items()
        if table is not None and not is_as_made(table.metadata, spec.stream)
    }


def of_asked_table(spec: StreamSpec, settings: Settings, table: str | None, topic: str | None = None) -> StreamSpec:
    """The stream as the rows of the table are made that is asked about; of another stream, itself.

    Args:
        spec: The stream.
        settings: Of the deployment.
        table: The table's name, if it is given.
        topic: One of the table's, if it is known.

    Raises:
        click.UsageError: It has several tables with columns of their own, and none of them is named.
    """
    if not spec.own_columns:
        if table is not None and table != spec.table.name:
            raise click.UsageError(
                f"--table is for streams whose tables have columns of their own; {spec.stream} is none"
            )
        return spec
    with contextlib.suppress(NoCatalogYet):
        spec = with_named_tables(spec, quick_catalog(settings))
    own = {spec.table.name} - ({spec.table.name} if spec.coordinator_has_rows else set[str]())
    tables = [each.name for each in spec.targets if each.role == "rows" and each.name not in own]
    # One of late rows has the columns of the table whose late rows it has.
    names = [each for each in tables if not spec.has_late_rows(each)]
    if table is None and topic is not None:
        naming = naming_state(spec, {}, decided=False)
        table = topic_tables(spec, [topic], names, naming)[topic].table
    if table is None or (topic is None and table not in names):
        told = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise click.UsageError(
            f"each table of {spec.stream} has columns of its own: name one, as in --table {told or 'NAME'}"
        )
    return of_table(spec, table)


@dataclass(frozen=True, slots=True)
class _Shown:
    table: str
    schema: str
    schema_id: int
    renames: Sequence[RenamedColumn]
    change: Alteration


def apply_to_tables(
    spec: StreamSpec, settings: Settings, renames: Sequence[RenamedColumn], *, yes: bool, as_json: bool
) -> None:
    """Change each table of rows so that it takes what the file declares, one commit each, the stream's own first.

    A table that is changed already is left as it is, so what was interrupted is finished by the same command.

    Raises:
        FrazilError: One of them cannot take it, and nothing is changed; or one was changed meanwhile, and those before
            it are done.
    """
    tables = tables_of_rows(spec, settings)
    refuse_unknown(spec.stream, renames, [spec.declared_rows, *(table.schema() for table in tables.values())])
    shown = [_shown(spec, name, table, renames) for name, table in tables.items()]
    if unfit := [each for each in shown if each.change.refused]:
        raise FrazilError(
            f"stream {spec.stream}: no change lets table {unfit[0].table} take what the file declares: "
            + "; ".join(unfit[0].change.refused)
            + ". Nothing was changed.",
            fix=f"correct streams/{spec.stream}.yaml, or name another table",
        )
    todo = [each for each in shown if each.change.sentences]
    if not as_json:
        for each in todo:
            click.echo(f"{spec.stream}: table {each.table} ({each.schema}) is to change:")
            for sentence in each.change.sentences:
                click.echo(f"  {sentence}")
        if not todo:
            click.echo(f"{spec.stream}: nothing to change; its tables take what the file declares.")
    if not todo or (as_json and not yes):
        if as_json:
            _print(spec, [(each, each.schema_id, each.change) for each in todo], done=False)
        return
    if not yes:
        click.confirm("Change the tables?" if len(todo) > 1 else "Change the table?", abort=True)
    made: list[tuple[_Shown, int, Alteration]] = []
    with translate_errors(settings, spec.stream), connect_catalog(settings) as catalog:
        for each in todo:
            try:
                schema_id, done = alter_table(
                    catalog,
                    spec,
                    lambda now, each=each: declared_alteration(spec, now, each.renames, each.table),
                    each.schema_id,
                    current_user(),
                    table=each.table,
                )
            except FrazilError as problem:
                before = ", ".join(shown.table for shown, *_ in made)
                if not before:
                    raise
                raise FrazilError(
                    f"{problem.message} Changed before it: {before}.", fix=f"frazil schema apply {spec.stream}"
                ) from problem
            made.append((each, schema_id, done))
            if not as_json:
                click.echo(f"Done: table {each.table} has schema {schema_id}.")
    if as_json:
        _print(spec, made, done=True)
    else:
        click.echo(f"The file is rolled out by itself.\n  Next: frazil status {spec.stream}")


def _shown(spec: StreamSpec, name: str, table: Table, renames: Sequence[RenamedColumn]) -> _Shown:
    metadata = table.metadata
    known, declared = dict(columns_of(metadata.schema())), dict(columns_of(declared_columns(spec, name)))
    # Done in a run before, which was interrupted; or of a column that this table is not to have.
    left = [each for each in renames if each.old in known or (each.new not in known and each.new in declared)]
    change = declared_alteration(spec, metadata, left, name)
    return _Shown(name, schema_name(metadata), metadata.current_schema_id, left, change)


def _print(spec: StreamSpec, tables: Sequence[tuple[_Shown, int, Alteration]], *, done: bool) -> None:
    facts = [{"table": each.table, "schema_id": number, "changes": made.sentences} for each, number, made in tables]
    own = next((each for each in facts if each["table"] == spec.table.name), {"schema_id": None, "changes": []})
    print_json({"stream": spec.stream, **own, "table": spec.table.name, "tables": facts, "done": done})
