"""Tables of a stream for `frazil schema`, which compares them with the file and changes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import (
    NoCatalogYet,
    connect_catalog,
    find_table,
    quick_catalog,
)
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.alteration import Alteration, alter_table, declared_alteration
from jobs.quality.schema_checks.declared import declared_columns, schema_name
from jobs.records.schema.difference import RenamedColumn, parse_rename
from jobs.records.schema.evolution import Fitting
from jobs.records.schema.schema_change import columns_of
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.streaming.driver.tables.follower_tables import ensure_follower
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.topic_tables import of_table, topic_tables
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.schema.followers import follower_names, following
from jobs.tables.write.table_creation import refuse_format
from jobs.tables.write.table_remaking import is_as_made
from orchestration.cli.common.consent import consent
from orchestration.cli.common.terminal import current_user, print_json

_SHOWN = 20


def read_renames(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[RenamedColumn, ...]:
    """Parse the renames of an option. An invalid rename is a wrong command line."""
    try:
        return tuple(map(parse_rename, texts))
    except FrazilError as problem:
        raise click.BadParameter(f"{problem.message} {problem.fix or ''}".rstrip()) from None


def refuse_unknown(stream: str, renames: Sequence[RenamedColumn], schemas: Iterable[Schema]) -> None:
    """Refuse renames if neither name is a column. A rename that is done already passes.

    Args:
        stream: Id of the stream.
        renames: The renames.
        schemas: Schemas of the stream's tables, and the schema in its file.

    Raises:
        click.UsageError: No schema has either name of a rename.
    """
    known = {path for schema in schemas for path, _ in columns_of(schema)}
    for each in renames:
        if each.old not in known and each.new not in known:
            raise click.UsageError(
                f"stream {stream}: {'.'.join(each.old)} is no column, and nor is {'.'.join(each.new)}, so nothing is "
                "renamed."
            )
        # A later rename may name the result of this one.
        known |= {(*each.new, *path[len(each.old) :]) for path in known if path[: len(each.old)] == each.old}


def followers_of(spec: StreamSpec, settings: Settings) -> dict[str, Table]:
    """Dependent tables with rows of a stream, by name, without tables of other streams and suspended tables.

    A suspended table takes no change. It gets missing columns when it is resumed.

    Raises:
        FrazilError: The catalog does not answer within seconds.
    """
    if not spec.tables_follow:
        return {}
    try:
        catalog = quick_catalog(settings)
        spec = with_named_tables(spec, catalog)
        parked = parked_tables(spec, catalog)
        names = [name for name in follower_names(spec) if name not in parked]
        found = {name: find_table(catalog, name, spec.branch_of(name)) for name in names}
    except NoCatalogYet:
        return {}
    return {
        name: table
        for name, table in found.items()
        if table is not None and not is_as_made(table.metadata, spec.stream)
    }


def behind_own(spec: StreamSpec, own: TableMetadata, followers: Mapping[str, Table]) -> dict[str, Fitting]:
    """Changes that give dependent tables the main table's columns, or their refusals; without up-to-date tables."""
    found = {name: following(spec, own, table.metadata, name, adopting=True) for name, table in followers.items()}
    return {name: fit for name, fit in found.items() if fit.changes or fit.refused}


def refuse_behind(spec: StreamSpec, behind: Mapping[str, Fitting]) -> None:
    """Refuse a change of the main table that a dependent table cannot take.

    Raises:
        FrazilError: A dependent table, which the message names, cannot take the change.
    """
    if unfit := next((name for name, fit in behind.items() if fit.refused), None):
        raise FrazilError(
            f"stream {spec.stream}: table {unfit}, which has the columns of table {spec.table.name}, cannot take them: "
            f"{'; '.join(each.rstrip('.') for each in behind[unfit].refused)}. Nothing was changed.",
            fix=f"alter table {unfit} so that it can, or name another one in streams/{spec.stream}.yaml",
        )


def print_behind(spec: StreamSpec, behind: Mapping[str, Fitting], followers: Mapping[str, Table]) -> None:
    """Print the changes of each dependent table."""
    for name, fit in behind.items():
        click.echo(f"{spec.stream}: table {name} ({schema_name(followers[name].metadata)}) is to follow:")
        for each in fit.changes:
            click.echo(f"  {each.sentence}")


def follow_own(catalog: Catalog, spec: StreamSpec, own: TableMetadata, names: Mapping[str, Fitting]) -> dict[str, int]:
    """Add missing columns of the main table to dependent tables, one commit each. After an error, earlier commits stay.

    Returns:
        Id of each table's schema, by name.
    """
    spec = with_named_tables(spec, catalog)
    return {name: ensure_follower(spec, catalog, own, name, adopting=True).metadata.current_schema_id for name in names}


def behind_facts(behind: Mapping[str, Fitting], followers: Mapping[str, Table]) -> list[dict[str, Any]]:
    """Changes of dependent tables as JSON, one object for each table."""
    return [
        {
            "table": name,
            "schema_id": table.metadata.current_schema_id,
            "fits": not (name in behind and behind[name].refused),
            "lacks": list(map(str, behind[name].changes)) if name in behind else [],
            "refused": list(behind[name].refused) if name in behind else [],
        }
        for name, table in followers.items()
    ]


def refuse_renames(spec: StreamSpec) -> None:
    """Refuse to rename a column that several tables have, as no single commit renames it in all of them.

    Raises:
        FrazilError: The stream has dependent tables.
    """
    if spec.tables_follow:
        raise FrazilError(
            f"stream {spec.stream}: a column of table {spec.table.name} is one of all its tables of rows, and no "
            "commit gives it another name in all of them at once. A record that has the former name gets a column of "
            "that name again, beside the renamed one.",
            fix="have the producers write the new name first, and land all that has the former one; then stop the "
            "stream and rename the column in each of its tables with Spark, with PyIceberg where Spark loads none, or "
            "leave it as it is",
        )


def refuse_backfill_of_several(spec: StreamSpec) -> None:
    """Refuse to backfill a promoted column of several tables, as a backfill fills the rows of one table.

    Raises:
        FrazilError: The stream has dependent tables.
    """
    if spec.tables_follow:
        raise FrazilError(
            f"stream {spec.stream} has several tables of the same columns, and a backfill fills the rows of one.",
            fix="promote without --backfill: earlier rows keep the field, and are read with coalesce",
        )


def stream_table(spec: StreamSpec, settings: Settings) -> Table | None:
    """Table of a stream's rows; None if it does not exist yet.

    Raises:
        FrazilError: The catalog does not answer within seconds.
    """
    try:
        return find_table(quick_catalog(settings), spec.table.name, spec.branch_of(spec.table.name))
    except NoCatalogYet:
        return None


def has_several(spec: StreamSpec) -> bool:
    """Whether a stream may have other tables with the rows that its file declares, for outputs or late rows."""
    return spec.decode.declares_all and (spec.route is not None or spec.late_table is not None)


def tables_of_rows(spec: StreamSpec, settings: Settings) -> dict[str, Table]:
    """Tables with rows of a stream, by name, the main table first. Empty tables are left out, as they are recreated.

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
    """Spec of a stream for one table; the spec itself if the tables have no columns of their own.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment.
        table: Name of the table, if the command line has one.
        topic: A topic of the table, if known.

    Raises:
        click.UsageError: Several tables have columns of their own, and no table is named.
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
    # A table of late rows has the columns of the table whose late rows it takes.
    if spec.route is not None:
        # The file's tables without records may exist as well, created by others.
        tables = [*dict.fromkeys([*tables, *(each for each in spec.route.table_names if each not in own)])]
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


@dataclass(frozen=True, slots=True)
class Answer:
    """Consent to changes of tables, as far as the command line gives it.

    Attributes:
        yes: Whether the command line consents.
        dry_run: Whether nothing may be changed.
        as_json: Whether output is JSON: then nobody is asked, and without `yes` nothing is changed.
    """

    yes: bool
    dry_run: bool
    as_json: bool

    def asked(self, question: str) -> bool:
        """Ask whether to go on, unless the command line answers the question.

        Raises:
            Abort: The person declines.
            ConsentNeeded: There is no terminal to ask at.
        """
        if not self.yes and (self.dry_run or self.as_json):
            if not self.as_json:
                click.echo("Nothing was changed.")
            return False
        consent(question, yes=self.yes)
        return True


def apply_to_tables(spec: StreamSpec, settings: Settings, renames: Sequence[RenamedColumn], answer: Answer) -> None:
    """Change each table of rows so that it fits the stream's file, one commit each, the main table first.

    Tables that fit already are left alone, so the same command finishes an interrupted run.

    Raises:
        FrazilError: A table cannot be changed so, and nothing is changed. Or a table was changed meanwhile, and the
            tables before it are done.
    """
    as_json, tables = answer.as_json, tables_of_rows(spec, settings)
    for name, table in tables.items():
        refuse_format(table.metadata, name)
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
    if not todo or not answer.asked("Change the tables?" if len(todo) > 1 else "Change the table?"):
        if as_json:
            _print(spec, [(each, each.schema_id, each.change) for each in todo], done=False)
        return
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
    # Renames that an interrupted run has done, and those of columns that this table does not have, are left out.
    left = [each for each in renames if each.old in known or (each.new not in known and each.new in declared)]
    change = declared_alteration(spec, metadata, left, name)
    return _Shown(name, schema_name(metadata), metadata.current_schema_id, left, change)


def _print(spec: StreamSpec, tables: Sequence[tuple[_Shown, int, Alteration]], *, done: bool) -> None:
    facts = [{"table": each.table, "schema_id": number, "changes": made.sentences} for each, number, made in tables]
    own = next((each for each in facts if each["table"] == spec.table.name), {"schema_id": None, "changes": []})
    print_json({"stream": spec.stream, **own, "table": spec.table.name, "tables": facts, "done": done})
