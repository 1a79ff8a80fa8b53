"""The sensor that publishes write-audit-publish streams as often as their files say: `frazil_publications`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import math
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets import dagster_names
from assets.published_check import PUBLISHED
from jobs.clients.catalog.catalog import find_table
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from orchestration.jobs.publish import JOB, PUBLISHED_TAG, publish_run
from orchestration.reconcile.cursor import StreamsCursor
from orchestration.sensors.due_runs import DueRuns, due_runs, due_runs_sensor

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SENSOR = "frazil_publications"


class PublishedStream(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of one stream.

    Attributes:
        at: When the stream was looked at; seconds since 1970.
        asked_at: When a publication was requested.
        held: Whether something was held then.
    """

    at: int = msgspec.field(default=0, name="a")
    asked_at: int = msgspec.field(default=0, name="q")
    held: bool = msgspec.field(default=False, name="h")


class PublicationsCursor(StreamsCursor[PublishedStream]):
    """The cursor of the sensor. Where it is lost, what has landed is published a little earlier."""


def _look(tick: DueRuns, spec: StreamSpec, catalog: "Catalog", known: PublishedStream, now: float) -> None:
    # Imported here: a code server that only loads has no use for it.
    from jobs.quality.contracts.check import contract_of
    from jobs.quality.contracts.check_result import contract_digest
    from jobs.quality.publishing.main_freshness import branch_ahead

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
    # An expectation that could not be evaluated is tried again as often as the stream would be published.
    if held is not None and judged and not held.unevaluated and known.asked_at:
        tick.sentences[spec.stream] = f"{held.rows:,} rows are quarantined: frazil release {spec.stream}"
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


run_publications_tick = partial(
    due_runs, wanted=_by_itself, remember=PublishedStream, busy="it is being published", look=_look
)
"""Look for write-audit-publish streams that are due for publishing; reads only metadata."""


def publication_sensor() -> dg.SensorDefinition:
    """The sensor; it reads tables' metadata and no row."""
    return due_runs_sensor(
        name=SENSOR,
        job=JOB,
        tag=PUBLISHED_TAG,
        description=(
            "Publishes what streams with `publish` have landed, at the interval publish.every of their files. "
            "Quarantined rows are checked again once the contract has changed."
        ),
        nothing="No stream has publish.every.",
        cursor=PublicationsCursor,
        tick=run_publications_tick,
        request=_request,
    )


def _request(
    spec: StreamSpec, settings: Settings, loaded: Collection[dg.AssetCheckKey], why: str, now: float
) -> dg.RunRequest | str:
    table = dagster_names.target_keys(settings, spec)[0]
    if dg.AssetCheckKey(table, PUBLISHED) in loaded:
        return publish_run(spec.stream, table, f"{spec.stream}:publish:{now:.0f}", why, SENSOR)
    return "its check is new: reload the code location"
