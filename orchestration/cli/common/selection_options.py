"""Options that select dead letters, shared by `frazil replay` and `frazil letters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from jobs.tables.dead_letter_table.table import STATES

_OPTIONS = (
    click.option("--reason", "reasons", multiple=True, metavar="CLASS", help="Letters with this error_class."),
    click.option("--stage", "stages", multiple=True, metavar="STAGE", help="Letters that failed in this stage."),
    click.option("--field", "fields", multiple=True, metavar="PATH", help="Letters that failed at this field."),
    click.option("--since", metavar="TIME", help="Letters first seen then or later, such as 2026-01-31T08:00:00Z."),
    click.option("--until", metavar="TIME", help="Letters first seen before."),
    click.option("--offsets", "offsets", multiple=True, metavar="T:P:A-B", help="TOPIC, TOPIC:3 or TOPIC:3:17-42."),
    click.option("--where", metavar="SQL", help="A predicate over the dead-letter table's columns."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many letters."),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([*STATES, "all"]),
        help="Letters in this state.",
    ),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a selection; it gets them as keywords for `parse_selection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
