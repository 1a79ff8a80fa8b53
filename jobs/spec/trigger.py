"""Trigger of a stream: when its batches run."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from jobs.spec.base import SpecModel
from jobs.spec.units import Duration


class Every(SpecModel):
    """A batch begins no sooner than this after the one before has begun, unless a full batch waits already."""

    every: Duration = timedelta(seconds=60)


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
