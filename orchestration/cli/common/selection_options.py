"""Options that select dead letters, shared by `frazil replay` and `frazil letters`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from jobs.tables.dead_letter_table.table import STATES
from orchestration.cli.common.durations import TimeOption

_OPTIONS = (
    click.option("--reason", "reasons", multiple=True, metavar="CLASS", help="Dead letters with this error_class."),
    click.option("--stage", "stages", multiple=True, metavar="STAGE", help="Dead letters that failed in this stage."),
    click.option("--field", "fields", multiple=True, metavar="PATH", help="Dead letters that failed at this field."),
    click.option(
        "--since", type=TimeOption(past=True), help="Dead letters first seen since: 24h, 2026-01-31, 2026-01-31T08:00Z."
    ),
    click.option("--until", type=TimeOption(), help="Dead letters first seen before, in the same forms."),
    click.option("--offsets", "offsets", multiple=True, metavar="T:P:A-B", help="TOPIC, TOPIC:3 or TOPIC:3:17-42."),
    click.option("--where", metavar="FILTER", help="Iceberg's row filter over the dead letters' columns."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many dead letters."),
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([*STATES, "all"]),
        help="Dead letters in this state; parked are exhausted ones.",
    ),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a selection; it gets them as keywords for `parse_selection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
