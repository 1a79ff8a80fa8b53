"""Checks of streams against the schema registry: whether it answers, and has schemas for the topics that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from jobs.errors import FrazilError
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import BadWriterSchema
from jobs.registry.client import LINES_TO_ADD, RegistryClient, SubjectVersion, quick_registry
from jobs.registry.failures import NotInRegistryError, RegistryError, RegistryUnavailableError
from jobs.spec.base import field_path
from jobs.spec.decode import key_subjects, value_subjects
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import refuse_names
from orchestration.cli.validate.findings import Finding


def check_registry(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Look at the registry, if the settings name one or a stream needs one."""
    needing = [spec for spec in specs if spec.decode.needs_registry]
    if settings.registry is None:
        for spec in needing:
            sentence = f"{spec.decode.of_registry} name their schemas by ids of a registry; frazil.yaml names none"
            yield Finding(spec.stream, "registry", "wrong", sentence, LINES_TO_ADD)
        return
    try:
        client = quick_registry(settings.registry)
        client.check()
    except RegistryError as problem:
        verdict = "unchecked" if isinstance(problem, RegistryUnavailableError) else "wrong"
        yield Finding(None, "registry", verdict, problem.message, problem.fix)
        return
    except FrazilError as problem:
        yield Finding(None, "registry", "unchecked", problem.message.rstrip("."), problem.fix)
        return
    yield Finding(None, "registry", "ok", f"{client.shown} answers")
    for spec in needing:
        topics = list(spec.source.topics or ())
        for subject in value_subjects(spec.decode, topics):
            yield _check_subject(spec, subject, "decode.value", spec.decode.format, client)
        if spec.decode.key is not None:
            for subject in key_subjects(spec.decode, topics):
                yield _check_subject(spec, subject, "decode.key", spec.decode.key.format, client)
    client.close()


def _check_subject(spec: StreamSpec, subject: str, where: str, format_: str, client: RegistryClient) -> Finding:
    try:
        newest = client.version(subject)
    except NotInRegistryError:
        sentence = f"{client.shown} has no subject {subject}: nothing was produced as yet, or under another name"
        return Finding(spec.stream, "registry", "unchecked", sentence)
    except RegistryError as problem:
        return Finding(spec.stream, "registry", "unchecked", problem.message, problem.fix)
    wanted = FORMATS[format_].registry_kind
    shown = f"subject {subject} stands at version {newest.version}, {newest.schema.kind}, id {newest.id}"
    if wanted != newest.schema.kind:
        fix = f"correct {where} of stream {spec.stream}, or the topic"
        return Finding(spec.stream, "registry", "wrong", f"{shown}; {where} is {format_}", fix)
    return Finding(spec.stream, "registry", "ok", shown)


def check_new_columns(spec: StreamSpec, settings: Settings) -> Iterator[Finding]:
    """Whether a stream's steps, rules and columns go with the newest schema, of which its table would be made."""
    key = spec.decode.key
    if settings.registry is None or spec.decode.schema_source != "registry":
        return
    if key is not None and key.schema_source != "declared":
        return
    format_ = FORMATS[spec.decode.format]
    try:
        with closing(quick_registry(settings.registry)) as client:
            newest = _newest(client, value_subjects(spec.decode, list(spec.source.topics or ())))
    except FrazilError:
        # What is wrong with the registry is said once.
        return
    if newest is None or newest[1].schema.kind != format_.registry_kind or format_.writer_rows is None:
        return
    subject, version = newest
    try:
        rows = format_.writer_rows(version.schema.schema, spec.decode.options)
    except BadWriterSchema as problem:
        sentence = f"subject {subject}, version {version.version}, makes no table: {problem.message}"
        yield Finding(spec.stream, "spec", "wrong", sentence, f"declare the columns in streams/{spec.stream}.yaml")
        return
    problems = spec.problems_of(rows, spec.record_columns)
    if not problems:
        try:
            schema = spec.table_schema_of(rows)
            refuse_names(spec.table.name, schema, partition_spec(spec.table.partition_by, schema))
        except FrazilError as problem:
            sentence = f"subject {subject}, version {version.version}: {problem.message}"
            yield Finding(spec.stream, "spec", "wrong", sentence, problem.fix)
    for place, problem in problems:
        sentence = f"{field_path(place)}: {problem}; the columns are those of subject {subject}"
        yield Finding(
            spec.stream,
            "spec",
            "wrong",
            f"{sentence}, version {version.version}",
            f"correct streams/{spec.stream}.yaml",
        )


def _newest(client: RegistryClient, subjects: Iterable[str]) -> tuple[str, SubjectVersion] | None:
    for subject in subjects:
        try:
            return subject, client.version(subject)
        except NotInRegistryError:
            continue
    return None
