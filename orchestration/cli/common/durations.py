"""Durations and times as options of commands: `5m`, `2026-01-31`, `2026-01-31T08:00:00Z`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from jobs.base.errors import FrazilError
from jobs.config.documents.units import parse_duration

_FORMS = "write it as 24h or 7d, 2026-01-31, or 2026-01-31T08:00:00Z"


def seconds_of(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """Parse an option's duration to seconds; used as the option's callback.

    Raises:
        BadParameter: The text is no duration.
    """
    try:
        return parse_duration(value).total_seconds()
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


class TimeOption(click.ParamType):
    """A time, as `--since` and its like take it everywhere: how long ago, a day, or an instant of ISO 8601.

    The value is a datetime in UTC. A day is its first moment; what names no zone is in UTC.

    Args:
        past: Refuse what is still to come.
    """

    name = "time"

    def __init__(self, *, past: bool = False) -> None:
        self._past: bool = past

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The option's value as the help shows it."""
        return "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse the instant.

        Raises:
            FrazilError: The text has none of the forms, or the instant is in the future.
        """
        if isinstance(value, datetime):
            return value
        now, text = datetime.now(UTC), str(value).strip()
        try:
            return now - parse_duration(text)
        except (ValueError, OverflowError):
            pass
        try:
            at = datetime.fromisoformat(text)
            at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise FrazilError(f"{_named(param)}'{text}' is no time.", fix=_FORMS) from None
        if self._past and at > now:
            raise FrazilError(f"{_named(param)}{text} is still to come.", fix=_FORMS)
        return at


def _named(parameter: click.Parameter | None) -> str:
    return f"{parameter.opts[0]}: " if parameter is not None else ""
