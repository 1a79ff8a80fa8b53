"""Command `frazil doctor`: checks of installation, machine and services, and a bundle of them for a maintainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from jobs.base.errors import FrazilError, first_line
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from orchestration.cli.common.terminal import print_json
from orchestration.cli.local.doctor.bundle import write_bundle
from orchestration.cli.local.doctor.deployment_checks import check_services, read_files
from orchestration.cli.local.doctor.machine_checks import (
    check_artifacts,
    check_interpreters,
    check_packages,
    check_ports,
    check_room,
    check_versions,
    versions,
)
from orchestration.cli.stream_files.validate.findings import Finding, finding_facts, print_findings
from resources.deployment import Deployment

_REPORT = "frazil doctor --bundle FILE, and report it with that file"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print versions and findings as one JSON document.")
@click.option(
    "--bundle",
    "bundle_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a .tar.gz for a maintainer: findings, settings, logs, without secrets.",
)
@click.option("--write-probe", is_flag=True, help="Write a file to the warehouse, read it and delete it.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, bundle_file: Path | None, write_probe: bool) -> None:
    """Check the installation, this machine and the services that the settings name.

    It works in any folder, and changes nothing there. The exit status is 1 if something is wrong.
    """
    deployment: Deployment = ctx.obj
    findings: list[Finding] = []

    def note(found: Iterable[Finding]) -> None:
        for finding in found:
            findings.append(finding)
            if not as_json:
                print_findings([finding])

    note([check_versions()])
    note(_attempt("python", check_interpreters, None))
    note(_attempt("packages", check_packages, None))
    specs, settings, about_files = read_files(deployment)
    note(about_files)
    note(_attempt("artifacts", lambda: check_artifacts(settings), settings))
    note(_attempt("disk", lambda: check_room(deployment, settings), settings))
    note(_attempt("ports", lambda: check_ports(deployment, settings), settings))
    if settings is not None and deployment.exists:
        note(
            _attempt("services", lambda: check_services(specs, settings, deployment, write_probe=write_probe), settings)
        )
    wrong = any(finding.verdict == "wrong" for finding in findings)
    if as_json:
        facts = [finding_facts(finding) for finding in findings]
        print_json({"healthy": not wrong, "versions": versions(), "findings": facts})
    if bundle_file is not None:
        names = write_bundle(bundle_file, deployment, specs, settings, findings, versions())
        size = bundle_file.stat().st_size / 1e3
        click.echo(
            f"wrote {bundle_file}: {len(names)} files, {size:,.0f} kB, without secrets. Look through it before you send"
            f" it: tar -tzf {bundle_file}",
            err=True,
        )
    ctx.exit(1 if wrong else 0)


def _attempt(subject: str, check: Callable[[], Iterable[Finding]], settings: Settings | None) -> Iterator[Finding]:
    """Run a check. If the check itself fails, that is one more finding, and the next checks run."""
    try:
        yield from check()
    except Exception as problem:
        said = (
            problem.message if isinstance(problem, FrazilError) else f"{type(problem).__name__}: {first_line(problem)}"
        )
        said = redacted(settings, said) if settings is not None else said
        yield Finding(None, subject, "wrong", f"the check failed: {said}", getattr(problem, "fix", None) or _REPORT)
