"""One tick of the sensor `frazil_publications`: which gated streams have landed what is to be published now."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from jobs.catalog import find_table
from jobs.spec.models import StreamSpec
from orchestration.reconcile.streams_cursor import StreamsCursor
from orchestration.sensors.due_runs import BUDGET_SECONDS, DueRuns, due_runs
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


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


class PublicationsCursor(StreamsCursor[PublishedStream]):
    """The cursor of the sensor. Where it is lost, what has landed is published a little earlier."""


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
    return due_runs(
        *(deployment, catalog, memory, under_way, now, budget),
        wanted=_by_itself,
        remember=PublishedStream,
        busy="it is being published",
        look=_look,
    )


def _look(tick: DueRuns, spec: StreamSpec, catalog: Catalog, known: PublishedStream, now: float) -> None:
    # Imported here: a code server that only loads has no use for it.
    from jobs.contract.check import contract_of
    from jobs.contract.check_result import contract_digest
    from jobs.publish.main_freshness import branch_ahead

    table = find_table(catalog, spec.table.name)
    ahead = branch_ahead(table.metadata, spec.stream, table=spec.table.name) if table is not None else None
    if ahead is None:
        tick.sentences[spec.stream] = "it has landed nothing yet"
        return
    if ahead.problem is not None:
        raise ahead.problem
    held, was_held = ahead.held, known.held
    known.held = held is not None
    judged = held is not None and held.judged_by == contract_digest(contract_of(spec, spec.targets[0]))
    # What could not be evaluated is judged again, as often as it would be published.
    if held is not None and judged and not held.unevaluated and known.asked_at:
        tick.sentences[spec.stream] = f"{held.rows:,} rows are held: frazil release {spec.stream}"
        return
    if not ahead.snapshots and not was_held:
        tick.sentences[spec.stream] = "main has all of it"
        return
    every = spec.publish.every if spec.publish else None
    wait = known.asked_at + (every.total_seconds() if every else 0) - now
    changed = was_held != known.held or (held is not None and not judged)
    if wait > 0 and not changed:
        tick.sentences[spec.stream] = f"{ahead.rows:,} rows are published in {wait:,.0f} s"
        return
    known.asked_at = math.floor(now)
    tick.start.append((spec, f"{ahead.rows:,} rows on {ahead.branch} are not in main"))


def _by_itself(spec: StreamSpec) -> bool:
    return spec.publish is not None and spec.publish.every is not None
