"""Command `frazil schema diff`: differences of a stream's file and its newest registry schemas from its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from pyiceberg.table import Table

from jobs.clients.registry.client import quick_registry
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.documents.validation import shown_path
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import evolving_schema
from jobs.quality.schema_checks.adoption import Adoption, adoption
from jobs.quality.schema_checks.declared import (
    DeclaredContract,
    declared_contract,
    identifier_sentence,
    schema_name,
)
from jobs.quality.schema_checks.finding import ContractFinding
from jobs.quality.schema_checks.subjects import (
    SubjectContract,
    advice,
    asked_contracts,
    renames_sentence,
)
from jobs.records.schema.evolution import Fitting
from jobs.records.schema.iceberg_schema import with_null
from jobs.streaming.driver.tables.schema_proposals import SchemaProposal, proposals
from jobs.tables.write.table_remaking import is_as_made
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_columns, print_json
from orchestration.cli.stream_files.schema.tables import (
    behind_facts,
    behind_own,
    followers_of,
    has_several,
    of_asked_table,
    stream_table,
    tables_of_rows,
)
from orchestration.cli.stream_files.validate.table_checks import followed_findings
from resources.deployment import Deployment

_SUBJECT_COLUMNS = ("column", "difference", "the records", "the table has", "then")
_COLUMNS = ("column", "difference", "the file says", "the table has", "then")


def print_subject(spec: StreamSpec, found: SubjectContract) -> None:
    """Print a schema's differences as a table, each with the outcome of its records."""
    if found.problem is not None:
        click.echo(f"{spec.stream}: {found.shown}: {found.problem.rstrip('.')}. Its records would become dead letters.")
        _print_advice(spec, found)
        return
    if not found.findings:
        click.echo(f"{spec.stream}: {found.shown} has exactly the columns of table {spec.table.name}.")
        return
    click.echo(f"{spec.stream}: {found.shown} against table {spec.table.name}")
    rows = [
        [
            finding.difference.column,
            finding.difference.kind.replace("_", " "),
            with_null(finding.difference.rows) if finding.difference.rows else None,
            with_null(finding.difference.table) if finding.difference.table else None,
            f"{finding.outcome.replace('_', ' ')}: {finding.why}",
        ]
        for finding in found.findings
    ]
    print_columns(_SUBJECT_COLUMNS, rows, text=_SUBJECT_COLUMNS)
    if found.renames:
        click.echo(renames_sentence(spec.stream, found.renames))
    _print_advice(spec, found)


def _print_advice(spec: StreamSpec, found: SubjectContract) -> None:
    if (said := advice(spec, found)) is not None:
        click.echo(f"  Next: {said}")


@click.command()
@stream_argument()
@click.option("--table", metavar="NAME", help="The table, if the stream's tables have columns of their own.")
@json_option()
@click.pass_context
def diff(ctx: click.Context, stream: str, table: str | None, as_json: bool) -> None:
    """Compare the columns in the file of STREAM, and its newest schemas in the registry, with its table.

    Shows each difference, its consequence, and proposed changes. The exit status is 1 if a driver with
    this file would not start, or the next record of such a schema would stop it.
    """
    deployment: Deployment = ctx.obj
    settings = deployment.settings()
    spec = of_asked_table(deployment.stream(stream), settings, table)
    file = shown_path(deployment.file_of(stream))
    _compare(ctx, spec, settings, file, as_json=as_json)


def _compare(ctx: click.Context, spec: StreamSpec, settings: Settings, file: str, *, as_json: bool) -> None:
    stream, table = spec.stream, stream_table(spec, settings)
    further, followers = _further(spec, settings), followers_of(spec, settings)
    if table is None or (is_as_made(table.metadata, stream) and not spec.tables_follow):
        sentence, fits = _nothing_to_compare(spec, table), all(found.fits for _, found in further)
        if as_json:
            print_json(_facts(spec, table, None, sentence) | {"fits": fits} | _further_facts(spec, further))
        else:
            click.echo(f"{stream}: {sentence}")
            _print_further(spec, further, file)
        ctx.exit(0 if fits else 1)
    others = {name: each.metadata for name, each in followers.items()}
    subjects, unasked = asked_contracts(spec, table.metadata, lambda: quick_registry(settings.registry), others)
    evolves = evolving_schema(spec, table.metadata)
    proposed = proposals(stream_folder(settings, stream).store, evolves, spec.table.name)
    declared = spec.decode.declared is not None
    found = declared_contract(spec, table.schema(), properties=table.properties) if declared else None
    followed = [] if declared else followed_findings(spec, table.metadata)[0]
    behind = behind_own(spec, table.metadata, followers)
    sentence = _nothing_to_compare(spec, table) if found is None else None
    other = identifier_sentence(spec, table.schema())
    lacks, unfit = adoption(spec, table.metadata, table.schema())
    fits = (
        not lacks.columns
        and not unfit
        and (found is None or found.fits)
        and all(each.level != "error" for each in subjects)
    )
    fits = fits and all(each.fits for _, each in further) and all(each.verdict != "wrong" for each in followed)
    fits = fits and not any(each.refused for each in behind.values())
    if as_json:
        facts = _facts(spec, table, found, sentence) | {"fits": fits, "unasked": unasked, "identifier_fields": other}
        facts |= {"adoption": lacks.sentences, "refused": list(unfit)} if lacks.sentences or unfit else {}
        print_json(
            facts
            | {"subjects": list(map(_subject_facts, subjects)), "proposals": list(map(_offer, proposed))}
            | ({"steps": [each.sentence for each in followed]} if followed else {})
            | _further_facts(spec, further)
            | ({"tables": behind_facts(behind, followers)} if spec.tables_follow else {})
        )
        ctx.exit(0 if fits else 1)
    if found is None:
        click.echo(f"{stream}: {sentence}")
        for each in followed:
            click.echo(f"{each.sentence[0].upper()}{each.sentence[1:].rstrip('.')}.")
            if each.fix:
                click.echo(f"  Next: {each.fix}")
    else:
        print_contract(spec, found, f"{file} against table {spec.table.name} ({schema_name(table.metadata)})")
    _print_further(spec, further, file)
    _print_behind(spec, behind)
    _print_adoption(spec, lacks, unfit)
    if other is not None:
        click.echo(f"{other}.")
        click.echo(f"  Next: frazil schema apply {stream}")
    for subject in subjects:
        print_subject(spec, subject)
    if unasked is not None:
        click.echo(f"The registry was not asked: {unasked}")
    for each in proposed:
        click.echo(f"Proposed: {each.says}")
        click.echo(f"  Next: {each.command}")
        if each.rename:
            click.echo(f"  or, if it is the same under another name: {each.rename}")
    ctx.exit(0 if fits else 1)


def _further(spec: StreamSpec, settings: Settings) -> list[tuple[Table, DeclaredContract]]:
    """The stream's other tables of rows, each with its differences from the file."""
    tables = tables_of_rows(spec, settings) if has_several(spec) else {}
    return [
        (table, declared_contract(spec, table.schema(), name))
        for name, table in tables.items()
        if name != spec.table.name
    ]


def _further_facts(spec: StreamSpec, further: list[tuple[Table, DeclaredContract]]) -> dict[str, Any]:
    if not has_several(spec):
        return {}
    return {
        "tables": [
            {
                "table": ".".join(table.name()),
                "schema_id": table.metadata.current_schema_id,
                "fits": found.fits,
                "differences": [finding.facts for finding in found.findings],
            }
            for table, found in further
        ]
    }


def _print_further(spec: StreamSpec, further: list[tuple[Table, DeclaredContract]], file: str) -> None:
    """Print the differences of the other tables that do not fit the file."""
    for table, found in further:
        if not found.fits:
            print_contract(
                spec, found, f"{file} against table {'.'.join(table.name())} ({schema_name(table.metadata)})"
            )


def _print_adoption(spec: StreamSpec, lacks: Adoption, unfit: Sequence[str]) -> None:
    """Print what a table that others created lacks for the stream's rows."""
    for sentence in unfit:
        click.echo(f"Table {spec.table.name}: {sentence}.")
    for sentence in lacks.sentences:
        click.echo(f"Table {spec.table.name} is to {sentence}.")
    if lacks.sentences and not unfit:
        click.echo(f"  Next: {spec.apply_command}")


def _print_behind(spec: StreamSpec, behind: dict[str, Fitting]) -> None:
    """Print dependent tables that lack columns of the main table, until their next commit or for good."""
    for name, fit in behind.items():
        for each in fit.refused:
            click.echo(f"Table {name} cannot take the columns of table {spec.table.name}: {each}")
        for each in fit.changes if not fit.refused else ():
            click.echo(f"Table {name} gets with the stream's next start or batch: {each}")


def _subject_facts(subject: SubjectContract) -> dict[str, Any]:
    return {
        "subject": subject.name,
        "version": subject.version,
        "verdict": subject.level,
        "problem": subject.problem,
        "differences": [finding.facts for finding in subject.findings],
        "renames": [each.facts for each in subject.renames],
    }


def _offer(proposal: SchemaProposal) -> dict[str, Any]:
    rename = {"rename": proposal.rename} if proposal.rename else {}
    return {"id": proposal.digest, "says": proposal.says, "next": proposal.command} | rename


def print_contract(spec: StreamSpec, found: DeclaredContract, heading: str) -> None:
    """Print the differences as a table, with the next command."""
    if not found.findings:
        click.echo(f"{spec.stream}: no difference; {heading}")
        return
    click.echo(f"{spec.stream}: {heading}")
    print_columns(_COLUMNS, [_row(finding) for finding in found.findings], text=_COLUMNS)
    for rename in found.renames:
        click.echo(
            f"{'.'.join(rename.old)} may be called {'.'.join(rename.new)} now: {rename.option} keeps its values."
        )
    if found.fits:
        click.echo("The table takes what the file declares.")
    elif found.can_be_applied:
        click.echo(f"  Next: frazil schema apply {spec.stream}")
    else:
        click.echo(f"  Next: correct decode.schema of stream {spec.stream}")


def _row(finding: ContractFinding) -> list[str | None]:
    difference = finding.difference
    rows, table = (with_null(each) if each else None for each in (difference.rows, difference.table))
    way = {"add": "apply adds it", "widen": "apply widens it", "relax": "apply lets it be null"}
    needs = difference.needs
    then = f"{finding.why}; {way[needs.change]}" if needs and finding.outcome == "stops" else finding.why
    return [difference.column, difference.kind.replace("_", " "), rows, table, then]


def _nothing_to_compare(spec: StreamSpec, table: Table | None) -> str:
    if table is None:
        return f"table {spec.table.name} does not exist yet; the first run creates it."
    if spec.decode.declared is None:
        return f"its columns are from: {spec.decode.schema_source}; the file declares none."
    return f"table {spec.table.name} has no rows; the next run makes it as the file declares."


def _facts(
    spec: StreamSpec, table: Table | None, found: DeclaredContract | None, sentence: str | None
) -> dict[str, Any]:
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "schema_id": table.metadata.current_schema_id if table else None,
        "fits": found.fits if found else True,
        "differences": [finding.facts for finding in found.findings] if found else [],
        "renames": [each.facts for each in found.renames] if found else [],
        "sentence": sentence,
    }
