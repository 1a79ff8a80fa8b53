"""Findings of `frazil validate` and `frazil doctor`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click

from jobs.config.documents.validation import SpecError, shown_path

Verdict = Literal["ok", "warning", "wrong", "unchecked"]
_MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "wrong": ("wrong", "red"),
    "unchecked": ("not checked", "yellow"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        stream: The stream's id; None if the finding concerns all streams.
        subject: `spec`, `settings`, `kafka`, `topic`, `catalog`, `registry`, `state`, `spark`, `drivers`, `table`,
            `mirror` or `contract`.
        fix: Next step, if there is one.
        file: YAML file of the problem, as messages show it; None if the problem is in no file.
        line: Line of the problem in the file, from 1; None if unknown.
    """

    stream: str | None
    subject: str
    verdict: Verdict
    sentence: str
    fix: str | None = None
    file: str | None = None
    line: int | None = None


def findings_in(error: SpecError, subject: str) -> list[Finding]:
    """Findings about a YAML file, one for each problem."""
    fix = f"correct {shown_path(error.path)}, then run `frazil validate`" if error.path else error.fix
    places = {str(place): (place.file, place.line or None) for place in error.places}
    return [
        Finding(error.stream, subject, "wrong", problem, fix, *places.get(problem, (None, None)))
        for problem in error.problems
    ]


def without_contradictions(findings: Sequence[Finding]) -> list[Finding]:
    """Findings without each `ok` of a file that another finding calls wrong."""
    wrong = {(each.stream, each.subject) for each in findings if each.verdict == "wrong" and each.subject in _OF_FILES}
    return [each for each in findings if each.verdict != "ok" or (each.stream, each.subject) not in wrong]


_OF_FILES = ("spec", "settings")


def finding_facts(finding: Finding) -> dict[str, str | int | None]:
    """Finding as JSON."""
    return {
        "stream": finding.stream,
        "subject": finding.subject,
        "verdict": finding.verdict,
        "sentence": finding.sentence,
        "next": finding.fix,
        "file": finding.file,
        "line": finding.line,
    }


def print_findings(findings: Sequence[Finding]) -> None:
    """Print each finding on a line, and its next step below; findings of one file share one next step."""
    for finding, following in zip(findings, [*findings[1:], None], strict=True):
        word, colour = _MARKS[finding.verdict]
        click.secho(f"{word:<12}", fg=colour, nl=False)
        click.echo(f"{finding.stream + ': ' if finding.stream else ''}{finding.subject}: {finding.sentence}")
        same_file = following is not None and finding.file is not None and following.file == finding.file
        if finding.fix and finding.verdict != "ok" and not same_file:
            click.echo(f"{'':<12}  Next: {finding.fix}")
