"""Command `frazil contract import`: converts a suite of Great Expectations to a stream's contract."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.quality.contracts.suite_import import import_suite
from orchestration.cli.common.options import json_option
from orchestration.cli.common.terminal import print_json, stderr_console


@click.group()
def contract() -> None:
    """Take over a suite of Great Expectations as a contract."""


@contract.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option()
def import_(file: Path, as_json: bool) -> None:
    """Print the contract block of a stream's file, from the JSON of a suite.

    Expectations that cannot be converted are comments, with the reason.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FrazilError(f"{file} cannot be read: {error}", fix="give the JSON file of a suite") from None
    imported = import_suite(text, str(file))
    if as_json:
        left = [{"expectation": name, "why": why} for name, why in imported.left]
        print_json({"file": str(file), "taken": imported.taken, "left": left, "yaml": imported.text})
        return
    click.echo(imported.text, nl=False)
    taken = f"{imported.taken} {'expectation' if imported.taken == 1 else 'expectations'} taken over"
    stderr_console().print(f"{taken}, {len(imported.left)} not; put the block into a file below streams/.", style="dim")
