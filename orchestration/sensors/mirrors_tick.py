"""One tick of the sensor `frazil_mirrors`: merges that nobody has told Dagster of, and what the check says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets.mirrors import mirror_key, mirror_metadata, mirror_outcome
from assets.stream_checks import evaluation
from jobs.catalog import NoCatalogYet
from jobs.errors import FrazilError
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec
from orchestration.reconcile.cursor import checksum, due
from orchestration.reconcile.stream_files import read_files
from orchestration.reconcile.streams_cursor import StreamsCursor
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# Mirrors are looked at for so long in a tick, those that were looked at longest ago first.
BUDGET_SECONDS = 15.0
# What the check says is told again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800


class KnownMirror(msgspec.Struct, omit_defaults=True):
    """What the sensor remembers of one mirror.

    Attributes:
        at: When it was looked at; seconds since 1970.
        sequence: Of the changelog, through which the newest merge that was seen reaches.
        told: A checksum of what the check said last; `told_at`: when, seconds since 1970.
    """

    at: int = msgspec.field(default=0, name="a")
    sequence: int = msgspec.field(default=-1, name="s")
    told: int = msgspec.field(default=0, name="c")
    told_at: int = msgspec.field(default=0, name="ca")


class MirrorsCursor(StreamsCursor[KnownMirror]):
    """The cursor of the sensor, by mirror's table. Where it is lost, Dagster's own record tells what was reported."""


@dataclass(slots=True)
class MirrorsTick:
    """What a tick comes to.

    Attributes:
        sentences: By mirror, what is to be said.
    """

    events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


def run_mirrors_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: MirrorsCursor,
    reported: Callable[[dg.AssetKey], str | None],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> MirrorsTick:
    """Look at the mirrors of every stream.

    Args:
        catalog: Connects to the catalog; asked only if there are mirrors.
        reported: The changelog's snapshot of the newest merge of a mirror that Dagster's record has.
        now: Seconds since 1970.
        budget: Seconds after which no other mirror is looked at.
    """
    tick, began = MirrorsTick(), time.monotonic()
    files = read_files(deployment)
    mirrors = [
        (spec.for_table(changelog), mirror) for spec in files.specs.values() for changelog, mirror in spec.mirrored
    ]
    if not files.absence:
        memory.keep_only([mirror.table for _, mirror in mirrors])
    if not mirrors:
        return tick
    try:
        connected = catalog()
    except NoCatalogYet as problem:
        return MirrorsTick(sentences={mirror.table: problem.message for _, mirror in mirrors})
    known = {name: each.at for name, each in memory.streams.items()}
    for spec, mirror in sorted(mirrors, key=lambda each: known.get(each[1].table, 0)):
        if time.monotonic() - began > budget:
            break
        try:
            mine = memory.streams.setdefault(mirror.table, KnownMirror())
            _look(tick, deployment, spec, mirror, connected, mine, reported, now)
        except FrazilError as problem:
            # One mirror's trouble is none of the others'.
            tick.sentences[mirror.table] = problem.message
    return tick


def _look(
    tick: MirrorsTick,
    deployment: Deployment,
    spec: StreamSpec,
    mirror: Mirror,
    catalog: Catalog,
    known: KnownMirror,
    reported: Callable[[dg.AssetKey], str | None],
    now: float,
) -> None:
    # Imported here: most code locations have no mirrors.
    from jobs.mirror.mirror_status import mirror_status
    from jobs.translate import translate_errors

    settings = deployment.settings()
    key = mirror_key(settings, mirror)
    known.at = int(now)
    with translate_errors(settings, spec.stream):
        status = mirror_status(spec, mirror, settings, catalog)
        merged = status.stamp is not None and status.stamp.sequence != known.sequence
        if merged and status.stamp is not None:
            known.sequence = status.stamp.sequence
            # A run that has merged it has told Dagster itself.
            if reported(key) != str(status.stamp.snapshot_id):
                metadata = mirror_metadata(spec, catalog.load_table(mirror.table), status)
                said = "Merged by the stream's driver, or by the command."
                tick.events.append(dg.AssetMaterialization(key, description=said, metadata=metadata))
                tick.sentences[mirror.table] = f"merged through changelog snapshot {status.stamp.snapshot_id}"
    outcome = mirror_outcome(spec, mirror, status)
    told = checksum(outcome.code)
    if told != known.told or due(now, known.told_at, AGAIN_SECONDS) or merged:
        # What was materialized since makes the check read as not evaluated.
        known.told, known.told_at = told, int(now)
        tick.events.append(evaluation(outcome, key))
