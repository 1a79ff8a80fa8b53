"""Command `frazil validate`: checks of streams and settings, as files and against the live services."""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.documents.secrets import Secret, WrittenSecret
from jobs.config.documents.validation import SpecError, shown_path
from jobs.config.services.trigger import OWN
from jobs.config.settings.groups import mixed_groups
from jobs.config.settings.maintained_tables import maintained_tables
from jobs.config.settings.settings import Settings, secret_references
from jobs.config.stream.error_handling import dead_letter_secrets
from jobs.config.stream.models import StreamSpec
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_json
from orchestration.cli.stream_files.validate.catalog_checks import (
    check_names,
    check_new_table,
    check_state,
    check_table,
    connected_catalog,
)
from orchestration.cli.stream_files.validate.findings import (
    Finding,
    finding_facts,
    findings_in,
    print_findings,
    without_contradictions,
)
from orchestration.cli.stream_files.validate.mirror_checks import check_mirrors
from orchestration.cli.stream_files.validate.property_checks import findings_in_stream
from orchestration.cli.stream_files.validate.service_checks import (
    check_cluster,
    check_launcher,
    check_letter_topic,
    check_options,
    check_registry,
    check_topics,
    connected_kafka,
)
from resources.deployment import NO_STREAM_YET_FIX, Deployment

_STOPS = "errors.dead_letters.topic.stops has no effect: the stop names the record, which is not put into the topic"


@click.command()
@click.argument("streams", nargs=-1)
@json_option("Print the findings as one JSON document.")
@click.pass_context
def validate(ctx: click.Context, streams: tuple[str, ...], as_json: bool) -> None:
    """Check STREAMS (all, if none is named) and the settings; then their topics and tables.

    A service that does not run, or a table that does not exist yet, is shown, and is no failure.
    """
    deployment: Deployment = ctx.obj
    specs, findings = _read_streams(deployment, streams)
    settings = _read_settings(deployment, findings)
    if settings is not None:
        # Only all streams together show which tables belong to a stream.
        whole = not streams and not any(finding.verdict == "wrong" for finding in findings)
        findings.extend(_check_maintenance(specs, settings))
        findings.extend(_check_sources(specs, settings))
        findings.extend(
            Finding(spec.stream, "spec", "wrong", sentence, f"give {spec.stream} another group, or `group: {OWN}`")
            for spec, sentence in mixed_groups(specs, settings)
        )
        if deployment.exists:
            findings.extend(live_findings(specs, settings, names=whole))
    findings = without_contradictions(findings)
    wrong = any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        print_json({"valid": not wrong, "findings": [finding_facts(finding) for finding in findings]})
    else:
        print_findings(findings)
    ctx.exit(1 if wrong else 0)


def _read_streams(deployment: Deployment, names: tuple[str, ...]) -> tuple[list[StreamSpec], list[Finding]]:
    specs, errors = deployment.streams()
    if names:
        specs, errors = _chosen(deployment, names, specs, errors)
    findings = [finding for error in errors for finding in findings_in_stream(error)]
    findings += [
        Finding(
            spec.stream,
            "spec",
            "ok",
            f"{', '.join(spec.source.topics or (spec.source.topics_pattern or '',))} to {spec.table.name}, "
            f"{_columns(spec)}; configuration {spec.config_hash}",
        )
        for spec in specs
    ]
    for spec in specs:
        for problem in filter(None, map(_unset, dead_letter_secrets(spec.errors))):
            findings.append(Finding(spec.stream, "spec", "unchecked", problem.message, problem.fix))
        if spec.errors.topic is not None and spec.errors.topic.stops:
            fix = f"remove the key from streams/{spec.stream}.yaml"
            findings.append(Finding(spec.stream, "spec", "warning", _STOPS, fix))
    if not specs and not errors:
        findings.append(
            Finding(None, "spec", "wrong", f"there is no stream in {deployment.streams_folder}", NO_STREAM_YET_FIX)
        )
    return specs, findings


def _chosen(
    deployment: Deployment, names: tuple[str, ...], specs: list[StreamSpec], errors: list[SpecError]
) -> tuple[list[StreamSpec], list[SpecError]]:
    """Specs of the named streams, and the errors of files that name them or are named after them."""
    good = {spec.stream: spec for spec in specs}
    chosen: list[StreamSpec] = []
    wrong: list[SpecError] = []
    for name in dict.fromkeys(names):
        of_name = [each for each in errors if name in (each.stream, each.path.stem if each.path else None)]
        wrong += [each for each in of_name if each not in wrong]
        if name in good or not of_name:
            chosen.append(good.get(name) or deployment.stream(name))
    return chosen, wrong


def _read_settings(deployment: Deployment, findings: list[Finding]) -> Settings | None:
    try:
        settings = deployment.settings()
    except SpecError as error:
        findings += findings_in(error, "settings")
        return None
    source = deployment.settings_file or deployment.home / "frazil.yaml"
    described = str(source) if source.exists() else "the embedded default: local broker, SQLite catalog"
    findings.append(Finding(None, "settings", "ok", described))
    mend = f"correct {shown_path(source)}, then run `frazil validate`"
    findings += [Finding(None, "settings", "warning", doubt, mend) for doubt in settings.catalog.doubts]
    for secret in secret_references(settings):
        problem = _unset(secret)
        if problem:
            findings.append(Finding(None, "settings", "unchecked", problem.message, problem.fix))
        if isinstance(secret, WrittenSecret):
            findings.append(_written(secret))
    return settings


def _written(secret: WrittenSecret) -> Finding:
    """Finding about a plain secret in the settings' file, which still works, as in earlier releases."""
    named = " and ".join(dict.fromkeys(secret.keys))
    section, _, rest = secret.place.partition(".")
    beside = [f"{key}: ${{env:NAME}} under {section}.properties" for key in secret.keys]
    inside = [f"{key}=${{env:NAME}}" for key in secret.keys]
    instead = " and ".join(inside if rest.startswith("properties.") else beside)
    sentence = f"{secret.place} has {named} in it, visible to every reader of the settings file"
    return Finding(None, "settings", "unchecked", sentence, f"write {instead} instead, then run `frazil validate`")


def live_findings(specs: list[StreamSpec], settings: Settings, *, names: bool = False) -> Iterator[Finding]:
    """Check streams against broker, catalog and registry. Each service is asked once, with a timeout of seconds.

    Args:
        specs: Specs of the streams.
        settings: Settings of the deployment.
        names: Whether to check the names in `maintenance.tables`; `specs` must then be all streams.
    """
    yield from check_state(settings)
    yield from check_cluster(settings)
    yield from check_launcher(settings)
    kafka = connected_kafka(specs, settings)
    catalog = connected_catalog(settings)
    for finding in (kafka, catalog):
        if isinstance(finding, Finding):
            yield finding
    yield from check_registry(specs, settings)
    for spec in specs:
        yield from check_new_table(spec)
        if disagree := check_options(spec, settings):
            yield disagree
        if isinstance(kafka, KafkaLog):
            yield check_topics(spec, kafka)
        if letters := check_letter_topic(spec, settings):
            yield letters
        if not isinstance(catalog, Finding):
            yield from check_table(spec, settings, catalog)
            yield from check_mirrors(spec, settings, catalog)
    if names and settings.maintenance.tables:
        away = isinstance(catalog, (NoCatalogYet, Finding))
        yield from [_names_unchecked(settings)] if away else check_names(specs, settings, catalog)


def _names_unchecked(settings: Settings) -> Finding:
    """Finding about names in `maintenance.tables` that were not checked, as no catalog is available."""
    named = ", ".join(table.name for table in settings.maintenance.tables)
    return Finding(None, "settings", "unchecked", f"maintenance.tables: whether there are {named} was not checked")


def _check_maintenance(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Report maintenance policies that are contradictory once settings and streams are merged."""
    for table in maintained_tables(settings, specs):
        try:
            table.require()
        except FrazilError as problem:
            yield Finding(table.stream, "spec" if table.stream else "settings", "wrong", problem.message, problem.fix)


def _check_sources(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Report mirrors whose `source.connection` is missing in the settings."""
    for spec in specs:
        for name in dict.fromkeys(each.source.connection for each in spec.mirrors if each.source is not None):
            # Imported here: most streams have no mirrors.
            from jobs.mirrors.check.compared_rows import refuse_unknown_source

            try:
                refuse_unknown_source(spec.stream, name, settings)
            except FrazilError as problem:
                yield Finding(spec.stream, "spec", "wrong", problem.message, problem.fix)


def _columns(spec: StreamSpec) -> str:
    if spec.decode.declared is None:
        return f"columns from: {spec.decode.schema_source}"
    return f"{len(spec.declared_rows.fields)} columns"


def _unset(secret: Secret) -> FrazilError | None:
    try:
        secret.reveal()
    except FrazilError as problem:
        return problem
    return None
