"""Consent of a person to what cannot be taken back: asked at a terminal, given as `--yes` elsewhere."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable

import click

from jobs.base.errors import FrazilError

_ARGUMENTS = "frazil.arguments"


class ConsentNeeded(FrazilError):
    """The command needs an answer, and there is no terminal to ask for it. The exit status is 2.

    Safe: Nothing was changed.
    Next: the command that the message shows, with `--yes` or the option that it names
    """


def keep_command_line(ctx: click.Context, arguments: Iterable[str]) -> None:
    """Note what was typed behind `frazil`, for errors that repeat it."""
    ctx.meta[_ARGUMENTS] = list(arguments)


def command_line(*more: str) -> str:
    """Typed command line with further words, quoted so that it can be typed again."""
    arguments: list[str] = click.get_current_context().meta.get(_ARGUMENTS, [])
    return shlex.join(["frazil", *arguments, *more])


def _command() -> str:
    names, ctx = list[str](), click.get_current_context()
    while ctx.parent is not None:
        names.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(["frazil", *names])


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty()


def show_plan(lines: Iterable[str], *, as_json: bool) -> None:
    """Show what is about to be done: on standard error if standard output is for a document."""
    for line in lines:
        click.echo(line, err=as_json)


def consent(question: str, *, yes: bool) -> None:
    """Ask whether to go on, unless `--yes` says so.

    Raises:
        Abort: The person says no.
        ConsentNeeded: No terminal can ask.
    """
    if yes:
        return
    if not can_ask():
        raise ConsentNeeded(
            f"{_command()} cannot be taken back, and no terminal can ask. Nothing was changed.",
            fix=command_line("--yes"),
        )
    click.confirm(question, abort=True, err=True)


def consent_with_reason(question: str, *, yes: bool, reason: str | None) -> str:
    """Ask whether to go on and why, as far as the command line does not say so.

    Returns:
        The reason.

    Raises:
        Abort: The person says no.
        ConsentNeeded: No terminal can ask.
    """
    if not reason and not can_ask():
        more = ("--reason", "TEXT") if yes else ("--reason", "TEXT", "--yes")
        raise ConsentNeeded(
            f"{_command()} needs a reason, which is kept, and no terminal can ask. Nothing was changed.",
            fix=command_line(*more),
        )
    consent(question, yes=yes)
    return reason or click.prompt("Why", err=True)
