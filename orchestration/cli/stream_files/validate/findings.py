"""Findings of `frazil validate`: what agrees, what is wrong, what could not be checked; as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

Verdict = Literal["ok", "warning", "wrong", "unchecked"]
_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "wrong": ("wrong", "red"),
    "unchecked": ("not checked", "yellow"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        stream: The stream's id; None where it concerns all.
        subject: `spec`, `settings`, `kafka`, `topic`, `catalog`, `registry`, `state`, `spark`, `drivers`, `table`,
            `mirror` or `contract`.
        fix: What to do, where something can be done.
    """

    stream: str | None
    subject: str
    verdict: Verdict
    sentence: str
    fix: str | None = None


def finding_facts(finding: Finding) -> dict[str, str | None]:
    """A finding as JSON has it."""
    return {
        "stream": finding.stream,
        "subject": finding.subject,
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "next": finding.fix,
    }


def print_finding(finding: Finding) -> None:
    """A finding on a line, with what to do on the next."""
    word, colour = _MARKS[finding.verdict]
    click.secho(f"{word:<12}", fg=colour, nl=False)
    click.echo(f"{finding.stream + ': ' if finding.stream else ''}{finding.subject}: {finding.sentence}")
    if finding.fix and finding.verdict != "ok":
        click.echo(f"{'':<12}  Next: {finding.fix}")
