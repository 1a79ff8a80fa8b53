"""Trigger of a stream: when its batches run."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Discriminator, Tag, model_validator

from jobs.spec.base import SpecModel, problems_at
from jobs.spec.units import Duration


class Every(SpecModel):
    """A batch begins no sooner than this after the one before has begun, unless a full batch waits already.

    Args:
        every: That time.
        while_red: In its place while the stream's own table is red, by the newest measurement of its health.
    """

    every: Duration = timedelta(seconds=60)
    while_red: Duration | None = None

    @model_validator(mode="after")
    def _slower(self) -> Every:
        if self.while_red is not None and self.while_red <= self.every:
            raise problems_at([(("while_red",), "must be longer than every")])
        return self


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
    """The longest time from one batch to the next that a trigger asks for."""
    return (while_red(trigger) or trigger.every) if isinstance(trigger, Every) else timedelta()


def while_red(trigger: Trigger) -> timedelta | None:
    """The time from one batch to the next while the table is red; None where that makes no difference."""
    return trigger.while_red if isinstance(trigger, Every) else None
