"""Command `frazil schema check`: outcome of records with a new schema, for the CI of their producers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.clients.registry.client import RegistryClient, SubjectVersion, registry_client
from jobs.clients.registry.failures import NotInRegistryError, RefusedSchemaError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.forecast import NO_TABLES, ExamplesContract, examples_contract
from jobs.quality.schema_checks.subjects import (
    SubjectContract,
    key_as_value,
    metadata_of,
    of_keys,
    renames_sentence,
    schema_in_file,
    subject_contract,
    subjects_of,
    version_contract,
    without_renames,
    writer_rows,
)
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema, RegistrySchema
from jobs.records.formats.known_formats import FORMATS
from orchestration.cli.common.options import json_option, stream_argument
from orchestration.cli.common.terminal import print_error, print_json
from orchestration.cli.stream_files.schema.diff import print_subject
from orchestration.cli.stream_files.schema.tables import followers_of, of_asked_table, stream_table
from resources.deployment import Deployment

_SHOWN = 20
_UNANSWERED = 3
_VERSION = re.compile("[1-9][0-9]{0,9}")
_FILES = (".avsc", ".proto", ".json", ".jsonl")
"""Suffixes of file names: such an argument is a file unless it is a subject of the registry."""


@click.command()
@stream_argument()
@click.option("--against", required=True, metavar="FILE|SUBJECT[:VERSION]", help="A schema, or records of JSON.")
@click.option("--table", metavar="NAME", help="The table, if the stream's tables have columns of their own.")
@click.option("--key", is_flag=True, help="It is the schema of records' keys, such as the subject TOPIC-key.")
@json_option()
@click.pass_context
def check(ctx: click.Context, stream: str, against: str, table: str | None, key: bool, as_json: bool) -> None:
    """Show what would happen to records of a schema that is new to STREAM.

    --against names a file with the schema, or a subject of the registry. Without a version, the newest one counts. For
    connect_json, the file has the schema of the envelopes. For JSON, it has a record on each line.

    The exit status is 0 if all records will land. It is 1 if some would become dead letters, or the stream would stop.
    It is 2 if the command line is wrong, and 3 if a service is unavailable.
    """
    try:
        status = _checked(ctx.obj, stream, against, table, key=key, as_json=as_json)
    except FrazilError as problem:
        print_error(problem)
        status = _UNANSWERED
    ctx.exit(status)


def _checked(deployment: Deployment, stream: str, against: str, asked: str | None, *, key: bool, as_json: bool) -> int:
    spec, settings = deployment.stream(stream), deployment.settings()
    spec = of_asked_table(spec, settings, asked, _topic_of(against, key=key))
    table = stream_table(spec, settings)
    # A missing table is created with the columns that the file declares, or else with those of the records.
    declared = spec.table_schema if spec.decode.declares_all else spec.declared_rows
    metadata = table.metadata if table is not None else metadata_of(declared)
    if key:
        if table is None and spec.decode.key is not None and spec.decode.key.schema_source != "declared":
            return _check_without_columns(key_as_value(spec), settings, metadata, against, as_json=as_json)
        return _check_keys(spec, settings, metadata, against, as_json=as_json)
    if table is None and spec.decode.declared is None:
        return _check_without_columns(spec, settings, metadata, against, as_json=as_json)
    if FORMATS[spec.decode.format].json_fields and not subjects_of(spec):
        examples = examples_contract(spec, metadata, _lines(Path(against)))
        print_json(_example_facts(spec, against, examples)) if as_json else _print_examples(spec, against, examples)
        return 1 if examples.failures else 0
    followers = {name: each.metadata for name, each in followers_of(spec, settings).items()}
    found = _contract(spec, settings, metadata, against, followers)
    print_json(_facts(spec, metadata, found)) if as_json else print_subject(spec, found)
    return 0 if found.level == "ok" else 1


def _topic_of(against: str, *, key: bool) -> str | None:
    """Topic of a subject that is named after one; None for other subjects and for files."""
    subject, end = against.partition(":")[0], "-key" if key else "-value"
    return subject.removesuffix(end) if subject.endswith(end) and not Path(against).is_file() else None


def _check_without_columns(
    spec: StreamSpec, settings: Settings, table: TableMetadata, against: str, *, as_json: bool
) -> int:
    """Check a schema for a stream whose table the first records define: they land if they can be read."""
    found = SubjectContract(against, None)
    if FORMATS[spec.decode.format].writer_rows is None:
        _lines(Path(against))
    else:
        asked = _contract(spec, settings, table, against)
        found = SubjectContract(asked.name, asked.version, problem=asked.problem)
    if as_json:
        print_json(_facts(spec, table, found) | {"schema_id": None})
    elif found.problem is not None:
        print_subject(spec, found)
    else:
        click.echo(f"{spec.stream}: table {spec.table.name} does not exist yet; the first run makes it of the records.")
    return 0 if found.level == "ok" else 1


def _check_keys(spec: StreamSpec, settings: Settings, table: TableMetadata, against: str, *, as_json: bool) -> int:
    if spec.decode.key is None:
        raise click.UsageError(f"stream {spec.stream} has no columns of keys (decode.key)")
    try:
        as_value, columns = of_keys(spec, table)
    except FrazilError as problem:
        # With this table no driver starts, so the schema does not matter.
        if as_json:
            print_json(_facts(spec, table, SubjectContract(against, None, problem=problem.message)))
        else:
            print_error(problem)
        return 1
    found = without_renames(_contract(as_value, settings, columns, against))
    print_json(_facts(spec, table, found)) if as_json else print_subject(as_value, found)
    return 0 if found.level == "ok" else 1


def _contract(
    spec: StreamSpec,
    settings: Settings,
    table: TableMetadata,
    against: str,
    followers: Mapping[str, TableMetadata] = NO_TABLES,
) -> SubjectContract:
    format_ = FORMATS[spec.decode.format]
    if format_.writer_rows is None:
        raise click.UsageError(f"records of the format {spec.decode.format} have no schema that could change")
    file = Path(against)
    if file.is_file():
        return subject_contract(spec, table, against, None, _schema_in(spec, file), followers=followers)
    if format_.registry_kind is None:
        raise click.UsageError(f"{against} is no file, and no registry has schemas of the format {spec.decode.format}")
    subject, _, number = against.partition(":")
    if number and not _VERSION.fullmatch(number):
        raise click.UsageError(f"{against} is no file, and its version is no number of one")
    try:
        client = registry_client(settings.registry)
        try:
            found = _version(client, against, subject, int(number) if number else None)
            return version_contract(spec, table, found, client, followers)
        finally:
            client.close()
    except FrazilError as problem:
        if against.endswith(_FILES) or "/" in against:
            said = f"there is no file {against}, and whether it is a subject could not be asked."
            raise click.UsageError(f"{said} {problem.message}") from None
        raise


def _schema_in(spec: StreamSpec, file: Path) -> RegistrySchema:
    """Read the schema in a file. A file without a schema of the stream's format is a wrong argument."""
    try:
        found = schema_in_file(spec, file)
    except FrazilError as problem:
        raise click.UsageError(problem.message) from None
    try:
        writer_rows(spec, found)
    except NoSchema as problem:
        raise click.UsageError(f"{file} has no schema, as {_why(spec, file, problem)}") from None
    except BadWriterSchema:
        # No column takes records of this schema, and the check reports their outcome.
        pass
    return found


def _why(spec: StreamSpec, file: Path, problem: NoSchema) -> str:
    """Reason why a file has no schema, with the place of invalid JSON."""
    if FORMATS[spec.decode.format].registry_kind == "PROTOBUF":
        return f"protoc refuses it: {problem.message}"
    try:
        json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as wrong:
        return f"it is no JSON: {wrong.msg} at line {wrong.lineno}, column {wrong.colno}"
    except RecursionError:
        pass
    return f"it is none of the format {spec.decode.format}: {problem.message}"


def _version(client: RegistryClient, against: str, subject: str, number: int | None) -> SubjectVersion:
    """Version of a subject in the registry. A missing version is a wrong argument."""
    try:
        return client.version(subject, number)
    except (NotInRegistryError, RefusedSchemaError) as problem:
        try:
            versions = client.versions(subject)
        except NotInRegistryError:
            raise click.UsageError(f"{against} is no file, and the registry has no subject {subject}") from None
        if number is None or number in versions:
            raise problem from None
        told = ", ".join(map(str, versions[-_SHOWN:]))
        told = f"… {told}" if len(versions) > _SHOWN else told
        raise click.UsageError(f"subject {subject} has no version {number}; versions: {told}") from None


def _lines(file: Path) -> list[bytes]:
    try:
        lines = [line for line in file.read_bytes().splitlines() if line.strip()]
    except OSError as problem:
        said = f"{file} cannot be read: {problem.strerror}; name a file with a record on each line"
        raise click.UsageError(said) from None
    if not lines:
        raise click.UsageError(f"{file} has no record; write one on each line")
    return lines


def _print_examples(spec: StreamSpec, against: str, found: ExamplesContract) -> None:
    good = found.records - len(found.failures)
    click.echo(f"{spec.stream}: of {found.records:,} records in {against} {good:,} would land.")
    for failure in found.failures[:_SHOWN]:
        at = f" at {failure.field}" if failure.field else ""
        click.echo(f"  line {failure.row + 1}: {failure.error_class}{at}: {failure.message}")
    if len(found.failures) > _SHOWN:
        click.echo(f"  and {len(found.failures) - _SHOWN:,} more")
    for path, count in sorted(found.left_out.items()):
        click.echo(f"  {path} is left out of {count:,} records: no column takes it")
    if found.renames:
        click.echo(renames_sentence(spec.stream, found.renames))


def _facts(spec: StreamSpec, table: TableMetadata, found: SubjectContract) -> dict[str, Any]:
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "schema_id": table.current_schema_id,
        "against": found.name,
        "version": found.version,
        "verdict": found.level,
        "problem": found.problem,
        "differences": [finding.facts for finding in found.findings],
        "renames": [each.facts for each in found.renames],
    }


def _example_facts(spec: StreamSpec, against: str, found: ExamplesContract) -> dict[str, Any]:
    failures = [
        {"line": each.row + 1, "class": each.error_class, "field": each.field, "message": each.message}
        for each in found.failures
    ]
    return {
        "stream": spec.stream,
        "table": spec.table.name,
        "against": against,
        "verdict": "warn" if failures else "ok",
        "records": found.records,
        "failures": failures,
        "left_out": dict(found.left_out),
        "renames": [each.facts for each in found.renames],
    }
