"""Consent to what cannot be taken back: asked at a terminal, `--yes` elsewhere, and the command line in the error."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from orchestration.cli.common.consent import consent, consent_with_reason
from orchestration.cli.main import Commands

ROOT = Path(__file__).resolve().parents[4]


class OneCommand(Commands):
    """The command line with a single command, `frazil drop`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return drop


@click.command()
@click.argument("table")
@click.option("--reason")
@click.option("--with-reason", is_flag=True)
@click.option("--yes", is_flag=True)
def drop(table: str, reason: str | None, with_reason: bool, yes: bool) -> None:
    if with_reason:
        why = consent_with_reason(f"Drop {table}?", yes=yes, reason=reason)
        click.echo(f"dropped {table}: {why}")
    else:
        consent(f"Drop {table}?", yes=yes)
        click.echo(f"dropped {table}")


class Named(OneCommand):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["drop"]


frazil = Named("frazil")


def without_terminal(*arguments: str) -> Result:
    return CliRunner().invoke(frazil, ["drop", *arguments], prog_name="frazil")


def test_without_a_terminal_the_error_is_the_command_line_with_yes() -> None:
    result = without_terminal("two words")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: frazil drop cannot be taken back, and no terminal can ask. Nothing was changed.\n"
        "  Next: frazil drop 'two words' --yes\n"
    )
    assert without_terminal("t", "--yes").stdout == "dropped t\n"


@pytest.mark.parametrize(
    ("given", "more"),
    [([], "--reason TEXT --yes"), (["--yes"], "--yes --reason TEXT"), (["--reason", "so"], "--reason so --yes")],
)
def test_a_reason_is_needed_as_well(given: list[str], more: str) -> None:
    result = without_terminal("t", "--with-reason", *given)
    assert result.exit_code == 2
    assert f"  Next: frazil drop t --with-reason {more}\n" in result.stderr


def test_all_that_is_needed_is_given() -> None:
    assert without_terminal("t", "--with-reason", "--yes", "--reason", "so").stdout == "dropped t: so\n"


def at_terminal(answers: str, *arguments: str) -> tuple[int, str]:
    """Run it with a terminal as its standard input, at which somebody types; exit status and standard output."""
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from tests.unit.orchestration.cli.test_consent import frazil\nfrazil(prog_name='frazil')"
    )
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answers.encode())
        done = subprocess.run(
            [sys.executable, "-c", code, str(ROOT), "drop", *arguments],
            stdin=theirs, capture_output=True, text=True, timeout=60, cwd=ROOT,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_at_a_terminal_a_person_is_asked() -> None:
    assert at_terminal("y\n", "t") == (0, "dropped t\n")
    assert at_terminal("n\n", "t") == (1, "")
    assert at_terminal("y\nit is old\n", "t", "--with-reason") == (0, "dropped t: it is old\n")
    assert at_terminal("it is old\n", "t", "--with-reason", "--yes") == (0, "dropped t: it is old\n")
    assert at_terminal("", "t", "--yes") == (0, "dropped t\n")
