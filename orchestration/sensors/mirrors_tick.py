"""Tick of the sensor `frazil_mirrors`: reports merges that Dagster has no record of, and the checks' results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg
import msgspec

from assets.mirrors import mirror_key, mirror_metadata, mirror_outcome, named_mirrors
from assets.named_tables import named_partition, named_tables_of
from assets.stream_checks import CheckOutcome, evaluation
from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.protocol.named_tables import with_named_tables
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


# Mirrors are looked at for so long in a tick, those that were looked at longest ago first.
BUDGET_SECONDS = 15.0
# An unchanged result of the check is reported again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800


class KnownMirror(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of one mirror.

    Attributes:
        at: Time when the mirror was read; seconds since 1970.
        sequence: Sequence number of the changelog through which the newest seen merge reaches.
        result_sum: Checksum of the check's last result.
        result_at: Time of that result; seconds since 1970.
    """

    at: int = msgspec.field(default=0, name="a")
    sequence: int = msgspec.field(default=-1, name="s")
    result_sum: int = msgspec.field(default=0, name="c")
    result_at: int = msgspec.field(default=0, name="ca")


class MirrorsCursor(StreamsCursor[KnownMirror]):
    """The cursor of the sensor, by mirror's table. If it is lost, Dagster's own record shows what was reported."""


@dataclass(slots=True)
class MirrorsTick:
    """Result of one tick.

    Attributes:
        sentences: The sentences of the tick's message, by mirror.
        partitions: The partitions that the tick reports, by the name of their dynamic partitions.
    """

    events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, list[str]] = field(default_factory=dict)

    @property
    def partition_requests(self) -> list[dg.AddDynamicPartitionsRequest]:
        """Requests to add the reported partitions to Dagster; those that it has stay as they are."""
        # One tick may report a partition twice: its merge, and the check's result.
        return [dg.AddDynamicPartitionsRequest(name, [*dict.fromkeys(keys)]) for name, keys in self.partitions.items()]


@dataclass(frozen=True, slots=True)
class ShownMirror:
    """A mirror, and where Dagster shows it.

    Attributes:
        spec: The stream as the rows of its changelog are made.
        mirror: The mirror of that changelog.
        named: Of the mirror of a table that a value has named the asset of all of them, the name of its partitions, and
            the mirror's; None of one with an asset of its own.
    """

    spec: StreamSpec
    mirror: Mirror
    named: tuple[Mirror, str, str] | None = None


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
    # Imported here: most code locations have no mirrors.
    from jobs.clients.catalog.translate import translate_errors

    tick, began = MirrorsTick(), time.monotonic()
    files = read_files(deployment)
    streams = [spec for spec in files.specs.values() if spec.mirrors]
    if not streams:
        if not files.absence:
            memory.keep_only([])
        return tick
    try:
        connected = catalog()
    except NoCatalogYet as problem:
        known_tables = [mirror.table for spec in streams for _, mirror in spec.mirrored]
        return MirrorsTick(sentences=dict.fromkeys(known_tables, problem.message))
    shown, unknown = list[ShownMirror](), False
    for spec in streams:
        try:
            with translate_errors(deployment.settings(), spec.stream):
                shown += _shown(spec, connected)
        except FrazilError as problem:
            unknown = True
            tick.sentences[spec.stream] = problem.message
    if not files.absence and not unknown:
        memory.keep_only([each.mirror.table for each in shown])
    known = {name: each.at for name, each in memory.streams.items()}
    for each in sorted(shown, key=lambda each: known.get(each.mirror.table, 0)):
        if time.monotonic() - began > budget:
            break
        try:
            mine = memory.streams.setdefault(each.mirror.table, KnownMirror())
            _look(tick, deployment, each, connected, mine, reported, now)
        except FrazilError as problem:
            # One mirror's trouble is none of the others'.
            tick.sentences[each.mirror.table] = problem.message
    return tick


def _shown(spec: StreamSpec, catalog: Catalog) -> list[ShownMirror]:
    """The mirrors of a stream, with those of tables that values have named."""
    if not named_mirrors(spec):
        return [ShownMirror(spec.for_table(changelog), mirror) for changelog, mirror in spec.mirrored]
    whole, partitions = with_named_tables(spec, catalog), named_tables_of(spec).name or ""
    patterns = {each.of_changelog(name).table: each for each in named_mirrors(spec) for name in whole.named_tables}
    found: list[ShownMirror] = []
    for changelog, mirror in whole.mirrored:
        value = named_partition(whole, changelog)
        named = (patterns[mirror.table], partitions, value) if value is not None else None
        found.append(ShownMirror(whole.for_table(changelog), mirror, named))
    return found


def _look(
    tick: MirrorsTick,
    deployment: Deployment,
    shown: ShownMirror,
    catalog: Catalog,
    known: KnownMirror,
    reported: Callable[[dg.AssetKey], str | None],
    now: float,
) -> None:
    # Imported here: most code locations have no mirrors.
    from jobs.clients.catalog.translate import translate_errors
    from jobs.mirrors.run.mirror_status import mirror_status

    spec, mirror, settings = shown.spec, shown.mirror, deployment.settings()
    key = mirror_key(settings, mirror)
    known.at = int(now)
    with translate_errors(settings, spec.stream):
        status = mirror_status(spec, mirror, settings, catalog)
        merged = status.stamp is not None and status.stamp.sequence != known.sequence
        if merged and status.stamp is not None:
            known.sequence = status.stamp.sequence
            # A run that has merged has reported the merge itself.
            if reported(key) != str(status.stamp.snapshot_id):
                metadata = mirror_metadata(spec, catalog.load_table(mirror.table), status)
                said = "Merged by the stream's driver, or by the command."
                tick.events.append(dg.AssetMaterialization(key, description=said, metadata=metadata))
                if shown.named is not None:
                    group, partitions, value = shown.named
                    tick.events.append(
                        dg.AssetMaterialization(
                            mirror_key(settings, group), partition=value, description=said, metadata=metadata
                        )
                    )
                    tick.partitions.setdefault(partitions, []).append(value)
                tick.sentences[mirror.table] = f"merged through changelog snapshot {status.stamp.snapshot_id}"
    outcome = mirror_outcome(spec, mirror, status)
    result_sum = checksum(outcome.code)
    if shown.named is not None:
        if result_sum != known.result_sum:
            known.result_sum = result_sum
            _observe(tick, settings, shown.named, outcome)
    elif result_sum != known.result_sum or due(now, known.result_at, AGAIN_SECONDS) or merged:
        # A materialization since then makes the check read as not evaluated.
        known.result_sum, known.result_at = result_sum, int(now)
        tick.events.append(evaluation(outcome, key))


def _observe(tick: MirrorsTick, settings: Settings, named: tuple[Mirror, str, str], outcome: CheckOutcome) -> None:
    """Observe a mirror's partition with the check's result; for a mirror without a check of its own."""
    group, partitions, value = named
    tick.events.append(
        dg.AssetObservation(
            mirror_key(settings, group),
            partition=value,
            description=outcome.sentence,
            metadata={"current": outcome.passed, **outcome.metadata},
        )
    )
    tick.partitions.setdefault(partitions, []).append(value)
    if not outcome.passed:
        tick.sentences.setdefault(f"{group.table}, {value}", outcome.sentence)
