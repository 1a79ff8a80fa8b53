"""Runs that a sensor has to ask for: a tick looks over the streams, in turn, for those that one is due for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from jobs.catalog import NoCatalogYet
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from orchestration.reconcile.stream_files import as_launched, read_files
from orchestration.reconcile.streams_cursor import StreamsCursor
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# A tick looks at as many streams as it can in so long, those that it looked at longest ago first.
BUDGET_SECONDS = 3.0


class Remembered(Protocol):
    """What a sensor remembers of one stream.

    Attributes:
        at: When it was looked at; seconds since 1970, 0 before.
    """

    at: int


R = TypeVar("R", bound=Remembered)


@dataclass(slots=True)
class DueRuns:
    """What a tick comes to.

    Attributes:
        start: The streams that a run is due for, each with why.
        sentences: By stream, what is to be said.
    """

    start: list[tuple[StreamSpec, str]] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


Look = Callable[[DueRuns, StreamSpec, "Catalog", R, float], None]
"""Looks at one stream: says what is to be said of it, and whether a run is due; may raise a `FrazilError`."""


def due_runs(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: StreamsCursor[R],
    under_way: Collection[str],
    now: float,
    budget: float,
    *,
    wanted: Callable[[StreamSpec], bool],
    remember: Callable[[], R],
    busy: str,
    look: Look[R],
) -> DueRuns:
    """Look over the streams; the catalog is asked only if one of them may have a run that is due.

    Args:
        catalog: Connects to the catalog.
        memory: Of the sensor; streams that are gone are forgotten.
        under_way: Streams that such a run is at work on.
        now: Seconds since 1970.
        budget: Seconds after which no other stream is looked at that was looked at before.
        wanted: Whether a stream is looked at at all.
        remember: What is remembered of a stream at first.
        busy: What is said of a stream that a run is at work on.
        look: Looks at one.
    """
    tick, began = DueRuns(), time.monotonic()
    files, settings = read_files(deployment), deployment.settings()
    specs = [*files.specs.values(), *as_launched(list(files.specs.values()), files.errors, settings, deployment)]
    chosen = [spec for spec in specs if wanted(spec)]
    if not chosen:
        return tick
    try:
        connected = catalog()
    except NoCatalogYet as problem:
        return DueRuns(sentences={spec.stream: problem.message for spec in chosen})
    ages = {stream: known.at for stream, known in memory.streams.items()}
    for spec in sorted(chosen, key=lambda spec: (ages.get(spec.stream, 0), spec.stream)):
        known = memory.streams.setdefault(spec.stream, remember())
        if known.at and time.monotonic() - began > budget:
            break
        known.at = math.floor(now)
        if spec.stream in under_way:
            tick.sentences[spec.stream] = busy
            continue
        try:
            look(tick, spec, connected, known, now)
        except FrazilError as problem:
            # One stream's trouble is none of the others'.
            tick.sentences[spec.stream] = problem.message
    if not files.absence:
        memory.keep_only([*(spec.stream for spec in specs), *files.claimed])
    return tick
