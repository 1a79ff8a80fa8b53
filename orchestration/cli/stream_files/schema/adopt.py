"""`frazil schema apply --adopt`: gives existing tables to the stream whose records name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog, quick_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.adoptable_tables import adoptable_tables, adopting_alteration
from jobs.quality.schema_checks.alteration import Alteration, alter_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from orchestration.cli.common.terminal import current_user, print_json
from orchestration.cli.stream_files.schema.tables import Answer


@dataclass(frozen=True, slots=True)
class _Asked:
    """Table to adopt.

    Attributes:
        name: Full name of the table.
        spec: Spec of the stream for this table.
        alteration: Function from the table's current metadata to the alteration that adopts it.
        schema_id: Id of the table's schema when the change was shown.
        change: The alteration that was shown.
    """

    name: str
    spec: StreamSpec
    alteration: Callable[[TableMetadata], Alteration]
    schema_id: int
    change: Alteration


def adopt_tables(spec: StreamSpec, settings: Settings, patterns: Sequence[str], answer: Answer) -> None:
    """Adopt each table that matches a pattern, one commit each. Tables that do not fit are left out.

    Raises:
        click.UsageError: Records of the stream name no tables, or a pattern names none.
        FrazilError: A table that is named in full cannot be given to the stream.
    """
    stream = spec.stream
    if spec.route is None or spec.route.to is None:
        raise click.UsageError(f"--adopt is for tables that route.to names, and stream {stream} has no route.to")
    with translate_errors(settings, stream):
        asked = _asked(spec, quick_catalog(settings), patterns)
    fit = [each for each in asked if not each.change.refused]
    if not answer.as_json:
        _print(stream, asked)
    if not fit or not answer.asked(
        f"Give {'this table' if len(fit) == 1 else f'these {len(fit)} tables'} to {stream}?"
    ):
        if answer.as_json:
            print_json(_facts(stream, asked, done=False))
        return
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        for each in fit:
            alter_table(catalog, each.spec, each.alteration, each.schema_id, current_user(), table=each.name)
            if not answer.as_json:
                click.echo(f"Done: table {each.name} is one of stream {stream}.")
    if answer.as_json:
        print_json(_facts(stream, asked, done=True))
    else:
        click.echo("A driver that runs knows them after its next start.")
        click.echo(f"  Next: frazil stop {stream} && frazil start {stream}; then frazil replay {stream}")


def _asked(spec: StreamSpec, catalog: Catalog, patterns: Sequence[str]) -> list[_Asked]:
    spec = with_named_tables(spec, catalog)
    found: dict[str, _Asked] = {}
    for pattern in patterns:
        tables = adoptable_tables(spec, catalog, pattern)
        if not tables:
            raise click.UsageError(
                f"stream {spec.stream}: {pattern} names no table that exists, that route.to names, and that is not the "
                "stream's already"
            )
        for name, table in tables.items():
            of_table, alteration = adopting_alteration(spec, catalog, name)
            change = alteration(table.metadata)
            if change.refused and name in patterns:
                raise FrazilError(
                    f"stream {spec.stream}: table {name} cannot be given to it: {'; '.join(change.refused)}. Nothing "
                    "was changed.",
                    fix=f"alter table {name} so that it can, or let another value name another table",
                )
            found[name] = _Asked(name, of_table, alteration, table.metadata.current_schema_id, change)
    return list(found.values())


def _print(stream: str, asked: Sequence[_Asked]) -> None:
    for each in asked:
        if each.change.refused:
            click.echo(f"{stream}: table {each.name} is left out: {'; '.join(each.change.refused)}")
            continue
        click.echo(f"{stream}: table {each.name} (schema {each.schema_id}) is to change:")
        for sentence in each.change.sentences:
            click.echo(f"  {sentence}")


def _facts(stream: str, asked: Sequence[_Asked], *, done: bool) -> dict[str, object]:
    tables = [
        {"table": each.name, "changes": each.change.sentences, "refused": list(each.change.refused)} for each in asked
    ]
    return {"stream": stream, "tables": tables, "done": done}
