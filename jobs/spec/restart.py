"""Restart block of a stream's YAML file: how a driver that ended is started again."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, model_validator

from jobs.spec.base import SpecModel, problems_at
from jobs.spec.fields import NonNegativeInt
from jobs.spec.maintenance_policy import OrNone
from jobs.spec.units import Duration


def _a_minute(value: timedelta | None) -> timedelta | None:
    if value is not None and value < timedelta(minutes=1):
        raise ValueError("must be at least 1m, beyond what the trigger waits; or none")
    return value


class Restart(SpecModel):
    """How a driver that ended with an error is started again: at once, then later and later, then not any more.

    Args:
        max_restarts: How often in a row, without a committed batch or a stable time in between.
        first_delay: Before the second restart in a row; doubles with each further one.
        longest_delay: The most that a delay grows to.
        stable_after: A driver that ran this long starts the count anew, as one does that has committed a batch.
        stalled_after: A driver with work that did not get on for so long, beyond its trigger, is replaced; none: never.
    """

    max_restarts: NonNegativeInt = 7
    first_delay: Duration = timedelta(seconds=10)
    longest_delay: Duration = timedelta(minutes=10)
    stable_after: Duration = timedelta(minutes=10)
    stalled_after: Annotated[OrNone, AfterValidator(_a_minute)] = timedelta(minutes=10)

    @model_validator(mode="after")
    def _in_order(self) -> Restart:
        if self.first_delay > self.longest_delay:
            raise problems_at([(("first_delay",), "must not be longer than longest_delay")])
        return self
