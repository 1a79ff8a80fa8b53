"""`frazil validate`: are the streams right, as files and against what is live?"""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobs.errors import FrazilError
from jobs.spec.error_handling import letter_secrets
from jobs.spec.maintained_tables import maintained_tables
from jobs.spec.models import StreamSpec
from jobs.spec.secrets import Secret
from jobs.spec.settings import Settings, secret_references
from jobs.spec.validation import SpecError, shown_path
from orchestration.cli.terminal import print_json
from orchestration.cli.validate.checks import validate as validate_live
from orchestration.cli.validate.finding import Finding
from resources.deployment import Deployment

_MARKS = {"ok": ("ok", "green"), "wrong": ("wrong", "red"), "unchecked": ("not checked", "yellow")}


@click.command()
@click.argument("streams", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@click.pass_context
def validate(ctx: click.Context, streams: tuple[str, ...], as_json: bool) -> None:
    """Check STREAMS (all, if none is named) and the settings; then the topics and tables they speak of.

    What cannot be checked because it is not running or not there yet is named, and is no failure.
    """
    deployment: Deployment = ctx.obj
    specs, findings = _read_streams(deployment, streams)
    settings = _read_settings(deployment, findings)
    if settings is not None:
        # Whose table a name is can only be told with all streams.
        whole = not streams and not any(finding.verdict == "wrong" for finding in findings)
        findings.extend(_check_maintenance(specs, settings))
        findings.extend(validate_live(specs, settings, names=whole))
    wrong = any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        print_json({"valid": not wrong, "findings": [_facts(finding) for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    ctx.exit(1 if wrong else 0)


def _read_streams(deployment: Deployment, names: tuple[str, ...]) -> tuple[list[StreamSpec], list[Finding]]:
    if names:
        specs = [deployment.stream(name) for name in names]
        errors: list[SpecError] = []
    else:
        specs, errors = deployment.streams()
    findings = [Finding(None, "spec", "wrong", problem, _mend(error)) for error in errors for problem in error.problems]
    findings += [
        Finding(
            spec.stream,
            "spec",
            "ok",
            f"{', '.join(spec.source.topics or (spec.source.topics_pattern or '',))} to {spec.table.name}, "
            f"{len(spec.resolved.schema.fields)} columns; configuration {spec.config_hash}",
        )
        for spec in specs
    ]
    for spec in specs:
        for problem in filter(None, map(_unset, letter_secrets(spec.errors))):
            findings.append(Finding(spec.stream, "spec", "unchecked", problem.message, problem.fix))
    if not specs and not errors:
        findings.append(Finding(None, "spec", "wrong", f"there is no stream in {deployment.streams_folder}"))
    return specs, findings


def _mend(error: SpecError) -> str | None:
    return f"correct {shown_path(error.path)}, then run `frazil validate`" if error.path else error.fix


def _read_settings(deployment: Deployment, findings: list[Finding]) -> Settings | None:
    try:
        settings = deployment.settings()
    except SpecError as error:
        findings += [Finding(None, "settings", "wrong", problem, _mend(error)) for problem in error.problems]
        return None
    source = deployment.settings_file or deployment.home / "frazil.yaml"
    described = str(source) if source.exists() else "the embedded default: local broker, SQLite catalog"
    findings.append(Finding(None, "settings", "ok", described))
    for secret in secret_references(settings):
        problem = _unset(secret)
        if problem:
            findings.append(Finding(None, "settings", "unchecked", problem.message, problem.fix))
    return settings


def _check_maintenance(specs: list[StreamSpec], settings: Settings) -> Iterator[Finding]:
    """Policies that contradict themselves once settings and streams are brought together."""
    for table in maintained_tables(settings, specs):
        try:
            table.require()
        except FrazilError as problem:
            yield Finding(table.stream, "spec" if table.stream else "settings", "wrong", problem.message, problem.fix)


def _unset(secret: Secret) -> FrazilError | None:
    try:
        secret.reveal()
    except FrazilError as problem:
        return problem
    return None


def _facts(finding: Finding) -> dict[str, str | None]:
    return {
        "stream": finding.stream,
        "subject": finding.subject,
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "next": finding.fix,
    }


def _print(finding: Finding) -> None:
    word, colour = _MARKS[finding.verdict]
    click.secho(f"{word:<12}", fg=colour, nl=False)
    click.echo(f"{finding.stream + ': ' if finding.stream else ''}{finding.subject}: {finding.sentence}")
    if finding.fix and finding.verdict != "ok":
        click.echo(f"{'':<12}  Next: {finding.fix}")
