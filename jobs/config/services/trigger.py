"""Models of how a stream runs: trigger of its batches, restarts of its driver, and driver groups."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Tag

from jobs.config.documents.base import Problems, SpecModel
from jobs.config.documents.units import Duration
from jobs.config.services.maintenance_policy import OrNone
from jobs.config.values.fields import NonNegativeInt

if TYPE_CHECKING:
    pass


def _a_minute(value: timedelta | None) -> timedelta | None:
    if value is not None and value < timedelta(minutes=1):
        raise ValueError("must be at least 1m, beyond what the trigger waits; or none")
    return value


class Restart(SpecModel):
    """How a driver that ended with an error is started again: at once, then later and later, then not any more.

    Args:
        max_restarts: Restarts in a row, without a committed batch between them, before the stream halts.
        first_delay: Pause before the second restart in a row. Each further one doubles it.
        longest_delay: Longest pause between restarts.
        stable_after: Running time without records after which the count restarts. A committed batch does so at once.
        stalled_after: Time without progress, beyond the trigger, after which a driver with work is replaced. ``none``
            never replaces it.
    """

    max_restarts: NonNegativeInt = 7
    first_delay: Duration = timedelta(seconds=10)
    longest_delay: Duration = timedelta(minutes=10)
    stable_after: Duration = timedelta(minutes=10)
    stalled_after: Annotated[OrNone, AfterValidator(_a_minute)] = timedelta(minutes=10)

    def _problems(self) -> Problems:
        if self.first_delay > self.longest_delay:
            yield ("first_delay",), "must not be longer than longest_delay"


class Every(SpecModel):
    """A batch begins no sooner than this after the one before has begun, unless a full batch waits already.

    Args:
        every: Time from the start of one batch to the start of the next.
        while_red: Time in place of ``every`` while the stream's main table is red. Longer than ``every``.
    """

    every: Duration = timedelta(seconds=60)
    while_red: Duration | None = None

    def _problems(self) -> Problems:
        if self.while_red is not None and self.while_red <= self.every:
            yield ("while_red",), "must be longer than every"


def _kind(value: object) -> str | None:
    if isinstance(value, str):
        return "@word"
    if isinstance(value, (dict, Every)):
        return "@every"
    return None


Trigger = Annotated[
    Annotated[Literal["available_now", "as_fast_as_possible"], Tag("@word")] | Annotated[Every, Tag("@every")],
    Discriminator(
        _kind,
        custom_error_type="frazil_trigger",
        custom_error_message="must be {every: 60s}, as_fast_as_possible or available_now",
    ),
]


def longest_pause(trigger: Trigger) -> timedelta:
    """Return the longest time from one batch to the next that a trigger asks for."""
    return (while_red(trigger) or trigger.every) if isinstance(trigger, Every) else timedelta()


def while_red(trigger: Trigger) -> timedelta | None:
    """Return the time from one batch to the next while the table is red; None if that makes no difference."""
    return trigger.while_red if isinstance(trigger, Every) else None


OWN = "own"
"""Value of `group` that gives a stream its own driver, whatever the settings say."""


def _group_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError("must be a name of lower-case letters, digits, - and _, such as small")
    return value


def _default_group(value: str) -> str:
    if _group_name(value) == OWN:
        raise ValueError(f"{OWN} belongs into a stream's file: it means a driver of its own, as without a group")
    return value


GroupName: TypeAlias = Annotated[str, AfterValidator(_group_name)]


class GroupsSettings(SpecModel):
    """Which streams share a driver.

    Args:
        default: Driver group of streams whose file names none. Without it, each has a driver of its own.
    """

    example = "{default: small}"

    default: Annotated[str, AfterValidator(_default_group)] | None = None
