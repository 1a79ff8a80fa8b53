"""Durations as options of commands: `60s`, `5m`."""

from __future__ import annotations

import click

from jobs.config.documents.units import parse_duration


def seconds_of(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """The seconds of an option's text, as its callback.

    Raises:
        BadParameter: It is no duration.
    """
    try:
        return parse_duration(value).total_seconds()
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None
