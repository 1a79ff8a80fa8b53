"""What `frazil letters` shows of letters and of why they failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from jobs.deadletter.letter_page import LetterPage, ShownLetter

SHOWN_OF_EACH = 3
_SHOWN_CHARACTERS = 300


def page_facts(page: LetterPage) -> dict[str, Any]:
    """A page, as `--json` prints it."""
    causes = [
        {
            "letters": count,
            "reason": cause.error_class,
            "stage": cause.stage,
            "field": cause.field or None,
            "needs": cause.needs or None,
            "shown": [asdict(letter) for letter in page.letters.get(cause, ())],
        }
        for cause, count in page.counts.items()
    ]
    return {
        "causes": causes,
        "letters_of_other_causes": page.others,
        "page": page.page,
        "pages": page.pages,
        "problems": [{"sentence": each.message, "next": each.fix} for each in page.unreadable],
    }


def print_page(page: LetterPage, stream: str) -> None:
    """A page, for a person: each cause with its letters, values cut."""
    for cause, letters in page.letters.items():
        field = f" at {_visible(cause.field)}" if cause.field else ""
        needs = f": {_visible(cause.needs)}" if cause.needs else ""
        click.echo(f"\n{page.counts[cause]:,} × {cause.error_class} in {cause.stage}{field}{needs}")
        for letter in letters:
            _print_letter(letter)
    if page.others:
        click.echo(f"\n{page.others:,} letters of other causes; select some, such as with --reason or --field")
    for problem in page.unreadable:
        click.echo(f"\n{problem.message}")
    if page.page < page.pages:
        click.echo(f"\npage {page.page} of {page.pages}\n  Next: frazil letters {stream} … --page {page.page + 1}")
    elif page.counts and not page.letters:
        click.echo(f"\nthere are {page.pages} pages")


def _print_letter(letter: ShownLetter) -> None:
    state = "" if letter.state == "new" else f", {letter.state}"
    field = f"{_visible(letter.field)}: " if letter.field else ""
    said = f": {field}{_visible(letter.message)}" if letter.message else ""
    click.echo(f"  topic {letter.topic}, partition {letter.partition}, offset {letter.offset}{state}{said}")
    if letter.replay_reason:
        again = f": {_visible(letter.replay_message)}" if letter.replay_message else ""
        click.echo(f"    last replay: {letter.replay_reason}{again}")
    if letter.value is not None:
        click.echo(f"    {_visible(letter.value, f'{letter.value_bytes:,} bytes')}")
    if letter.masked:
        click.echo(f"    masked: {_visible(letter.masked)}")


def _visible(text: str, size: str = "") -> str:
    """Text that does nothing to a terminal, on one line; cut when it is long."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:_SHOWN_CHARACTERS])
    return shown if len(text) <= _SHOWN_CHARACTERS else f"{shown}… ({size or f'{len(text):,} characters'})"
