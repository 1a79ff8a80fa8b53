"""Subjects of a registry in the terminal: what records of a schema would lead to."""

from __future__ import annotations

import click

from jobs.schema.iceberg_schema import with_null
from jobs.schema_contract.subjects import SubjectContract, advice, renames_sentence
from jobs.spec.models import StreamSpec
from orchestration.cli.terminal import print_columns

_TEXT = {"column", "difference", "the records", "the table has", "then"}


def print_subject(spec: StreamSpec, found: SubjectContract) -> None:
    """A schema's differences as a table, each with what becomes of records."""
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
    print_columns(["column", "difference", "the records", "the table has", "then"], rows, text=_TEXT)
    if found.renames:
        click.echo(renames_sentence(spec.stream, found.renames))
    _print_advice(spec, found)


def _print_advice(spec: StreamSpec, found: SubjectContract) -> None:
    if (said := advice(spec, found)) is not None:
        click.echo(f"  Next: {said}")
