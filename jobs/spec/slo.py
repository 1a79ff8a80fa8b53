"""What is promised of a stream, in its YAML file: how complete its table is, and how little goes wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from jobs.formats.decoder import KEY_PATH
from jobs.spec.base import Problem, Problems, SpecModel
from jobs.spec.event_time import EventTime
from jobs.spec.fields import PositiveInt
from jobs.spec.units import Duration, format_duration


class Freshness(SpecModel):
    """How long ago the table may last have been complete. At least a minute; ``warn`` is shorter than ``fail``.

    Args:
        by: What says through when it is complete: that all records are in that had come by then (``arrival``), or the
            watermark of ``event_time``.
    """

    warn: Duration
    fail: Duration
    by: Literal["arrival", "event_time"] = "arrival"

    def _problems(self) -> Problems:
        short = [name for name in ("warn", "fail") if getattr(self, name) < timedelta(seconds=60)]
        yield from (((name,), "must be at least 60s") for name in short)
        if self.warn >= self.fail:
            yield ("warn",), "must be shorter than fail"


def _json_path(value: str) -> str:
    if value not in ("$", KEY_PATH) and not value.startswith(("$.", f"{KEY_PATH}.")):
        raise ValueError("must be the path of a key such as $.debug, or $ for all")
    return value


class Slo(SpecModel):
    """What is promised of a stream; a check turns red where it is not kept.

    Args:
        lag_records: The most records that may wait.
        lag_time: The longest that the table may be behind the log; without it ``freshness.fail``, if there is one.
            Without any of the three, 15 minutes beyond the trigger, which only warns.
        dead_letter_ratio: The largest share of dead letters within the last minutes; without it
            ``errors.stop_above.ratio``, or 5 %.
        unknown_fields: Paths of keys that are left out on purpose, such as ``$.debug``, with all below them; ``$`` is
            every key that the schema does not declare.
    """

    lag_records: PositiveInt | None = None
    lag_time: Duration | None = None
    dead_letter_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    unknown_fields: tuple[Annotated[str, AfterValidator(_json_path)], ...] = ()

    def leaves_out(self, path: str) -> bool:
        """Whether a key that is not declared is left out on purpose."""
        below = tuple(f"{each}{mark}" for each in self.unknown_fields for mark in ".[{")
        return path in self.unknown_fields or path.startswith(below)


def freshness_problems(freshness: Freshness | None, event_time: EventTime | None) -> list[Problem]:
    """Returns what is wrong with a freshness that is judged by the watermark."""
    if freshness is None or freshness.by != "event_time":
        return []
    if event_time is None:
        return [(("freshness", "by"), "can be event_time only where the block event_time names the column")]
    if freshness.warn <= event_time.grace:
        grace = format_duration(event_time.grace)
        return [
            (("freshness", "warn"), f"must be longer than event_time.grace, {grace}, which the watermark is behind")
        ]
    return []
