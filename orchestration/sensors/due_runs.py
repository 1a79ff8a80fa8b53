"""Runs that a sensor has to ask for: what a tick over the streams comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from jobs.spec.models import StreamSpec


@dataclass(slots=True)
class DueRuns:
    """What a tick comes to.

    Attributes:
        start: The streams that a run is due for, each with why.
        sentences: By stream, what is to be said.
    """

    start: list[tuple[StreamSpec, str]] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)
