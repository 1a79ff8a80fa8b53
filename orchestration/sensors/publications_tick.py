"""One tick of the sensor `frazil_publications`: which gated streams have landed what is to be published now."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from jobs.catalog import NoCatalogYet, find_table
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from orchestration.reconcile.stream_files import as_launched, read_files
from orchestration.sensors.due_runs import DueRuns
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# A tick looks at as many streams as it can in so long, those that it looked at longest ago first.
BUDGET_SECONDS = 3.0


class PublishedStream(msgspec.Struct, omit_defaults=True):
    """What the sensor remembers of one stream.

    Attributes:
        at: When it was looked at; seconds since 1970.
        asked_at: When a publication was asked for.
        held: Whether something was held then.
    """

    at: int = msgspec.field(default=0, name="a")
    asked_at: int = msgspec.field(default=0, name="q")
    held: bool = msgspec.field(default=False, name="h")


class PublicationsCursor(msgspec.Struct, omit_defaults=True):
    """The cursor of the sensor. Where it is lost, what has landed is published a little earlier."""

    streams: dict[str, PublishedStream] = msgspec.field(default_factory=dict)

    @staticmethod
    def from_cursor(cursor: str | None) -> PublicationsCursor:
        """What a cursor holds; nothing of one that cannot be read."""
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(cursor or "{}", type=PublicationsCursor)
        return PublicationsCursor()

    def to_cursor(self) -> str:
        """As Dagster keeps it."""
        return msgspec.json.encode(self).decode()


def run_publications_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: PublicationsCursor,
    under_way: Collection[str],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> DueRuns:
    """Look for gated streams that are to be published now; reads metadata only.

    Args:
        catalog: Connects to the catalog.
        under_way: Streams that a run publishes now.
        now: Seconds since 1970.
        budget: Seconds after which no other stream is looked at.
    """
    tick, began = DueRuns(), time.monotonic()
    files, settings = read_files(deployment), deployment.settings()
    specs = [*files.specs.values(), *as_launched(list(files.specs.values()), files.errors, settings, deployment)]
    wanted = [spec for spec in specs if spec.publish is not None and spec.publish.every is not None]
    if not wanted:
        return tick
    try:
        connected = catalog()
    except NoCatalogYet as problem:
        return DueRuns(sentences={spec.stream: problem.message for spec in wanted})
    for spec in _in_turn(wanted, memory):
        known = memory.streams.setdefault(spec.stream, PublishedStream())
        if known.at and time.monotonic() - began > budget:
            break
        known.at = math.floor(now)
        if spec.stream in under_way:
            tick.sentences[spec.stream] = "it is being published"
            continue
        try:
            _look(tick, spec, connected, known, now)
        except FrazilError as problem:
            # One stream's trouble is none of the others'.
            tick.sentences[spec.stream] = problem.message
    if not files.absence:
        for stream in set(memory.streams) - {spec.stream for spec in specs} - set(files.claimed):
            del memory.streams[stream]
    return tick


def _look(tick: DueRuns, spec: StreamSpec, catalog: Catalog, known: PublishedStream, now: float) -> None:
    # Imported here: a code server that only loads has no use for it.
    from jobs.contract.check import contract_of
    from jobs.contract.check_result import contract_digest
    from jobs.publish.ahead import branch_ahead

    table = find_table(catalog, spec.table.name)
    ahead = branch_ahead(table.metadata, spec.stream) if table is not None else None
    if ahead is None:
        tick.sentences[spec.stream] = "it has landed nothing yet"
        return
    held, was_held = ahead.held, known.held
    known.held = held is not None
    if held is not None and held.judged_by == contract_digest(contract_of(spec, spec.targets[0])) and known.asked_at:
        tick.sentences[spec.stream] = f"{held.rows:,} rows are held: frazil release {spec.stream}"
        return
    if not ahead.snapshots and not was_held:
        tick.sentences[spec.stream] = "main has all of it"
        return
    every = spec.publish.every if spec.publish else None
    wait = known.asked_at + (every.total_seconds() if every else 0) - now
    changed = was_held != known.held or held is not None
    if wait > 0 and not changed:
        tick.sentences[spec.stream] = f"{ahead.rows:,} rows are published in {wait:,.0f} s"
        return
    known.asked_at = math.floor(now)
    tick.start.append((spec, f"{ahead.rows:,} rows on {ahead.branch} are not in main"))


def _in_turn(specs: Sequence[StreamSpec], memory: PublicationsCursor) -> list[StreamSpec]:
    return sorted(specs, key=lambda spec: (memory.streams.get(spec.stream, PublishedStream()).at, spec.stream))
