"""`frazil schema apply --promote`: turns a field of the rescued data (`_extra`) into a column of the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.config.documents.validation import shown_path
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.backfill.backfill import (
    Backfilled,
    TableChangedError,
    backfill,
    refuse_backfill,
)
from jobs.maintenance.backfill.promotion import (
    Promotion,
    coalesce_sql,
    parse_field,
    parse_type,
    promotion,
)
from jobs.maintenance.backfill.rescued_values import (
    ProposedType,
    RescuedValues,
    proposed_type,
    rescued_values,
)
from jobs.maintenance.run.table_lock import TableBusyError, table_lock
from jobs.quality.schema_checks.alteration import alter_table, altered_metadata
from jobs.quality.schema_checks.declared import schema_name
from jobs.records.schema.needs import Path, column_name
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.write.table_remaking import is_as_made
from orchestration.cli.common.terminal import current_user, print_json, progress_bar
from orchestration.cli.stream_files.schema.tables import (
    Answer,
    behind_own,
    follow_own,
    followers_of,
    of_asked_table,
    refuse_backfill_of_several,
    refuse_behind,
    stream_table,
)
from resources.deployment import Deployment

_DOUBTS = {
    "mixed": "its values are of several types; those of the others stay there",
    "beyond_decimal": "some numbers have more than 38 digits; those stay kept",
    "case": "some names within differ by case only; those stay kept",
    "name": "some names within can be no column; those stay kept",
    "more_fields": "it has more fields within than were looked at; those stay kept",
    "too_deep": "some values are nested too deep to distinguish",
    "empty": "some lists or objects within were always empty: their type is a guess",
    "always_null": "some fields within were always null: their type is a guess",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Request to promote a field, with the stream's spec and the settings."""

    deployment: Deployment
    spec: StreamSpec
    settings: Settings
    as_json: bool
    backfilling: bool

    @property
    def file(self) -> str:
        return shown_path(self.deployment.file_of(self.spec.stream))


def promote_field(
    deployment: Deployment,
    stream: str,
    field: str,
    kind: str | None,
    of_table: str | None,
    *,
    backfilling: bool,
    answer: Answer,
) -> None:
    """Promote a field for `frazil schema apply STREAM --promote FIELD`.

    Args:
        deployment: The deployment with the stream.
        stream: Id of the stream.
        field: Path of the field, such as `$.payer.name`.
        kind: Type of the column; None for the proposed type.
        of_table: Name of the table, if the stream's tables have columns of their own.
        backfilling: Whether existing rows get the column's values, too.
        answer: Consent from the command line.

    Raises:
        FrazilError: The field cannot be promoted.
    """
    settings = deployment.settings()
    spec = of_asked_table(deployment.stream(stream), settings, of_table)
    as_json = answer.as_json
    asked = _Asked(deployment, spec, settings, as_json, backfilling)
    path = parse_field(field)
    type_ = parse_type(kind, path) if kind is not None else None
    table = stream_table(spec, settings)
    if table is None or (is_as_made(table.metadata, stream) and not spec.tables_follow):
        raise FrazilError(f"table {spec.table.name} has no rows yet.", fix=f"frazil run {stream}")
    with translate_errors(settings, stream):
        found = promotion(spec, table.schema(), path, type_)
        kept, proposed = None, None
        if found is None:
            kept = _looked_at(asked, table, path)
            proposed = proposed_type(kept.seen, spec)
            found = promotion(spec, table.schema(), path, _type(asked, field, kept, proposed))
        assert found is not None
        if backfilling:
            _refuse_gated(spec)
            refuse_backfill_of_several(spec)
            refuse_backfill(table, found)
    change = found.alteration(table.metadata, spec)
    if change.refused:
        raise FrazilError(
            f"{'; '.join(change.refused)}. Nothing was changed.", fix=f"frazil schema apply {stream} --help"
        )
    behind = behind_own(spec, altered_metadata(spec, table.metadata, change), followers_of(spec, settings))
    refuse_behind(spec, behind)
    _show(asked, table, found, kept, proposed)
    if not change.changes and not backfilling:
        _tell_nothing(asked, table, found)
        return
    if not answer.asked("Change the table?" if change.changes else "Rewrite its data files?"):
        if as_json:
            _print_facts(asked, table.metadata.current_schema_id, found, kept, None, done=False)
        return
    with translate_errors(settings, stream), connect_catalog(settings) as catalog:
        schema_id = table.metadata.current_schema_id
        if change.changes:
            schema_id, _ = alter_table(
                catalog, spec, lambda now: found.alteration(now, spec), schema_id, current_user()
            )
            follow_own(catalog, spec, catalog.load_table(spec.table.name).metadata, behind)
            if not as_json:
                click.echo(f"Table {spec.table.name} has schema {schema_id}.")
        done = _backfilled(asked, catalog, found) if backfilling else None
    if as_json:
        _print_facts(asked, schema_id, found, kept, done, done=True)
        return
    if done is not None:
        _tell_backfill(asked, found, done)
    _tell_next(asked, found)


def _looked_at(asked: _Asked, table: Table, path: Path) -> RescuedValues:
    with _bar(asked, f"Looking at {EXTRA_COLUMN}") as update:
        return rescued_values(
            table,
            path,
            asked.spec.kafka_columns.coordinates,
            everything=asked.backfilling,
            on_progress=lambda files, of, rows: update(files, of, f"{rows:,} rows have it"),
        )


def _type(asked: _Asked, field: str, kept: RescuedValues, proposed: ProposedType) -> Any:
    if proposed.type is not None:
        return proposed.type
    where = "the rows" if kept.complete else f"the {kept.files:,} of {kept.all_files:,} data files that were looked at"
    what = "is always null or empty in" if kept.rows else "is kept in none of"
    raise FrazilError(
        f"{field} {what} {where} of table {asked.spec.table.name}, so no type can be proposed.",
        fix=f"frazil schema apply {asked.spec.stream} --promote '{field}' --as TYPE",
    )


def _show(
    asked: _Asked, table: Table, found: Promotion, kept: RescuedValues | None, proposed: ProposedType | None
) -> None:
    if asked.as_json:
        return
    name, stream = asked.spec.table.name, asked.spec.stream
    if found.new is not None:
        click.echo(f"{stream}: table {name} ({schema_name(table.metadata)}) is to change:")
        for sentence in found.alteration(table.metadata, asked.spec).sentences:
            click.echo(f"  {sentence}")
    if kept is not None:
        sample = "" if kept.complete else f", in {kept.files:,} of {kept.all_files:,} data files"
        click.echo(f"  {found.place} is kept in {kept.rows:,} rows{sample}; null in {_nulls(kept):,}")
    for doubt in proposed.doubts if proposed else ():
        click.echo(f"  {_DOUBTS.get(doubt, doubt)}")
    if proposed is not None and proposed.form is not None:
        click.echo(f"  all its texts look like times or days: --as '{proposed.form}' would take them as such")
    if asked.backfilling:
        click.echo(f"  Data files whose rows have kept {found.place} are rewritten, with column {found.column} filled.")


def _nulls(kept: RescuedValues) -> int:
    value = kept.seen.fields.get("value")
    return value.nulls if value else 0


def _refuse_gated(spec: StreamSpec) -> None:
    """Refuse to backfill a stream with publication: rewritten files would look like newly landed ones."""
    if spec.publish is not None:
        raise FrazilError(
            f"stream {spec.stream} is published from branch {spec.publish.branch}, which takes appends only.",
            fix="promote without --backfill: earlier rows keep the field, and are read with coalesce",
        )


def _backfilled(asked: _Asked, catalog: Catalog, found: Promotion) -> Backfilled:
    name = asked.spec.table.name
    table = on_branch(catalog.load_table(name), asked.spec.branch_of(name))
    try:
        with (
            table_lock(asked.settings, asked.spec.table.name, str(table.metadata.table_uuid)) as lock,
            _bar(asked, f"Filling {found.column}") as update,
        ):
            return backfill(
                table,
                found,
                asked.spec.kafka_columns.coordinates,
                verify=lock.verify,
                on_progress=lambda done: update(done.looked_at, done.all_files, f"{done.rows:,} rows filled"),
            )
    except TableBusyError as busy:
        raise TableBusyError(
            f"{busy.message} The column exists, and its rows are not filled.",
            fix=f"wait for it to end, then {_again(asked, found)}",
        ) from None
    except TableChangedError as changed:
        raise TableChangedError(changed.message, fix=_again(asked, found)) from None


@contextlib.contextmanager
def _bar(asked: _Asked, what: str) -> Iterator[Any]:
    """Progress bar of data files. The yielded function takes the number of done files, of all files, and a note."""
    with progress_bar(
        "{task.completed:,.0f} of {task.total:,.0f} files", "[dim]{task.fields[note]}", bar=True
    ) as progress:
        task = progress.add_task(what, total=0, note="")
        yield lambda done, of, note: progress.update(task, completed=done, total=of, note=note)


def _tell_nothing(asked: _Asked, table: Table, found: Promotion) -> None:
    if asked.as_json:
        _print_facts(asked, table.metadata.current_schema_id, found, None, None, done=False)
        return
    click.echo(f"{asked.spec.stream}: table {asked.spec.table.name} has column {found.column}.")
    click.echo(f"  Earlier rows: {_again(asked, found)}")


def _tell_backfill(asked: _Asked, found: Promotion, done: Backfilled) -> None:
    click.echo(f"{done.rows:,} rows have got {found.column}: {done.files:,} files rewritten, {done.commits:,} commits.")
    if done.left:
        why = ", ".join(f"{count:,} {name}" for name, count in sorted(done.by_class.items()))
        click.echo(f"{done.left:,} values stay in {EXTRA_COLUMN}, because the column does not take them ({why}):")
        for each in done.examples:
            click.echo(f"  {each.place}: {each.error_class} at {each.field}")
        if done.left > len(done.examples):
            click.echo(f"  and {done.left - len(done.examples):,} more")
    for path, why in list(done.skipped.items())[:10]:
        click.echo(f"Left as it is: {path}: {why}")
    if done.skipped:
        click.echo(f"  Next: frazil maintain {asked.spec.table.name}, then {_again(asked, found)}")


def _tell_next(asked: _Asked, found: Promotion) -> None:
    declare, again = found.undeclared(asked.spec), _again(asked, found)
    if asked.spec.decode.schema_source != "declared":
        click.echo(
            f"A driver that runs fills it from its next batch but one; until then {EXTRA_COLUMN} keeps the field."
        )
    elif declare is not None:
        inside, text = declare
        click.echo(f"Now add to decode.schema in {asked.file}{f', within {column_name(inside)}' if inside else ''}:")
        click.echo(f"  {text}")
        click.echo(
            f"Until a driver runs with that file, new records keep the field in {EXTRA_COLUMN}; nothing is lost."
        )
    if asked.backfilling:
        click.echo(f"  Next, for rows that land meanwhile: {again}")
        return
    if (sql := coalesce_sql(found)) is not None:
        click.echo(f"Earlier rows keep it in {EXTRA_COLUMN}. In Spark, for both: {sql}")
    if not asked.spec.tables_follow:
        click.echo(f"  Next, to fill earlier rows as well: {again}")


def _again(asked: _Asked, found: Promotion) -> str:
    return f"frazil schema apply {asked.spec.stream} --promote '{found.place}' --backfill"


def _print_facts(
    asked: _Asked,
    schema_id: int,
    found: Promotion,
    kept: RescuedValues | None,
    filled: Backfilled | None,
    *,
    done: bool,
) -> None:
    facts: dict[str, Any] = {
        "stream": asked.spec.stream,
        "table": asked.spec.table.name,
        "schema_id": schema_id,
        "field": found.place,
        "column": found.column,
        "type": str(found.type),
        "new": found.new is not None,
        "declare": declare[1] if (declare := found.undeclared(asked.spec)) else None,
        "done": done,
    }
    if kept is not None:
        facts["kept"] = {"rows": kept.rows, "files": kept.files, "complete": kept.complete}
    if filled is not None:
        facts["backfill"] = {
            "rows": filled.rows,
            "files": filled.files,
            "commits": filled.commits,
            "left": filled.left,
            "left_by_class": filled.by_class,
            "skipped": filled.skipped,
        }
    print_json(facts)
