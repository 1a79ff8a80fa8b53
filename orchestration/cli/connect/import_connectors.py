"""`frazil import`: streams and settings of connectors, with a report of every key."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import shown_path
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import Conversion, convert
from jobs.migration.files.plan import (
    PAGE,
    REPORT,
    Action,
    ImportPlan,
    PlannedFile,
    plan_import,
    planned_paths,
    write_import,
)
from jobs.migration.report.markdown import TITLES
from orchestration.cli.common.consent import consent, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, yes_option
from orchestration.cli.common.terminal import print_columns, print_json
from orchestration.cli.connect.worker_options import worker_login, worker_login_options
from resources.deployment import Deployment

_MOST_LINES = 60
_WORDS: Mapping[Action, str] = {
    "create": "New",
    "update": "Changed",
    "edited": "Edited since the last import",
    "kept": "Edited since the last import, and nothing new",
}


class NothingToImport(FrazilError):
    """The sources of an import have no connector, or none of the named ones.

    Safe: Nothing was written.
    Next: name files, folders or a worker's address that have connectors
    """


@click.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the deployment that gets the files; made if it does not exist.  [default: the deployment's]",
)
@click.option("--connector", "names", multiple=True, metavar="NAME", help="Only this connector; may be repeated.")
@click.option("--keep", is_flag=True, help="Keep files that were edited since the last import, without a question.")
@worker_login_options()
@dry_run_option()
@yes_option("Replace files that were edited since the last import, without a question.")
@json_option("Print the report as one JSON document.")
@click.pass_obj
def import_(
    deployment: Deployment,
    sources: tuple[str, ...],
    into: Path | None,
    names: tuple[str, ...],
    keep: bool,
    connect_user: str | None,
    connect_password: str | None,
    connect_ca: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make streams and settings of the connectors in SOURCE: files, folders, or the address of a Connect worker.

    Files are JSON, properties or Strimzi's resources. Writes streams/*.yaml, frazil.yaml (only what it lacks) and
    import-report.md and .json, which have every key once. No secret is written: each becomes a reference. Nothing is
    changed at Kafka Connect, and no stream is started.
    """
    folder = (into or deployment.home).expanduser().absolute()
    login = worker_login(connect_user, connect_password, connect_ca)
    conversion = convert(read_sources(sources, login), names)
    _check(conversion, sources, names)
    plan = plan_import(conversion, folder)
    if dry_run:
        written: list[str] = []
    else:
        replace_edited = _asked(plan, yes=yes, keep=keep, as_json=as_json)
        written = write_import(plan, replace_edited=replace_edited)
    if as_json:
        print_json(_facts(plan, written, dry_run=dry_run))
        return
    _print_report(plan)
    _print_files(plan, written, dry_run=dry_run)


def _check(conversion: Conversion, sources: tuple[str, ...], names: tuple[str, ...]) -> None:
    found = {converted.connector.name for converted in conversion.connectors}
    if missing := [name for name in names if name not in found]:
        raise NothingToImport(
            f"There is no connector {', '.join(missing)} in {', '.join(map(_shown, sources))}.",
            fix="leave --connector out, which imports all",
        )
    if not found:
        reasons = "".join(f"\n  {sentence}" for sentence in conversion.skipped)
        workers = [converted.worker.place.source for converted in conversion.workers]
        reasons += "".join(f"\n  {source}: has keys of a worker alone" for source in workers)
        raise NothingToImport(
            f"There is no connector in {', '.join(map(_shown, sources))}.{reasons}",
            fix="name files, folders or a worker's address that have connectors"
            + (", beside the worker's file" if workers else ""),
        )


def _shown(source: str) -> str:
    """A source without user and password."""
    scheme, mark, rest = source.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else source


def _asked(plan: ImportPlan, *, yes: bool, keep: bool, as_json: bool) -> bool:
    """Whether edited files are replaced; asks for what differs."""
    if plan.conflicts:
        show_plan(
            [f"frazil.yaml has other values than the connectors, and keeps them: {', '.join(plan.conflicts)}"],
            as_json=as_json,
        )
        if not keep:
            consent("Keep the values of frazil.yaml?", yes=yes)
    if not plan.edited or keep:
        return False
    show_plan((line for file in plan.edited for line in _difference(plan, file)), as_json=as_json)
    names = ", ".join(file.path for file in plan.edited)
    consent(f"Replace {names}, which were edited since the last import (--keep keeps them)?", yes=yes)
    return True


def _difference(plan: ImportPlan, file: PlannedFile) -> Iterator[str]:
    """What replacing an edited file would change; frazil refuses files with secrets in them, so none is shown."""
    existing = (plan.folder / file.path).read_text(encoding="utf-8").splitlines()
    lines = list(difflib.unified_diff(existing, file.text.splitlines(), file.path, "import", lineterm="", n=1))
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"… {len(lines) - _MOST_LINES} more lines"


def _facts(plan: ImportPlan, written: list[str], *, dry_run: bool) -> dict[str, Any]:
    return {
        "folder": str(plan.folder),
        "dry_run": dry_run,
        "written": written,
        "files": {file.path: file.action for file in plan.files},
        "conflicts": list(plan.conflicts),
        "report": plan.document,
    }


def _print_report(plan: ImportPlan) -> None:
    names = ["connector", "outcome", "streams", *(title.lower() for title in TITLES.values())]
    rows = [
        [
            one["name"],
            one["outcome"],
            ", ".join(one["streams"]) or "–",
            *(sum(key["heading"] == heading for key in one["keys"]) for heading in TITLES),
        ]
        for one in plan.document["connectors"]
    ]
    print_columns(names, rows, text={"connector", "outcome", "streams"})
    for sentence in plan.conversion.skipped:
        click.echo(f"Left out: {sentence}")
    for converted in plan.conversion.connectors:
        for question in converted.questions:
            if question.blocks:
                click.echo(f"{converted.connector.name}: {question.text}")


def _print_files(plan: ImportPlan, written: list[str], *, dry_run: bool) -> None:
    where = shown_path(plan.folder)
    for action, words in _WORDS.items():
        if paths := planned_paths(plan.files, action):
            click.echo(f"{words}: {', '.join(paths)}")
    if dry_run:
        click.echo("Nothing was written.")
        return
    click.echo(f"{len(written)} files written in {where}." if written else f"Nothing has changed in {where}.")
    click.echo(f"Every key is in {PAGE}, and for programs in {REPORT}.")
    secrets = {one.reference[6:-1] for one in plan.conversion.secrets if one.reference.startswith("${env:")}
    if secrets:
        click.echo(f"Set before the first run: {', '.join(sorted(secrets))}")
    click.echo("  Next: frazil validate")
