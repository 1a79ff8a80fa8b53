"""Status of a mirror: time and source position that it has reached, and its lag behind the changelog."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import find_table
from jobs.clients.state_store.mirror_problem import noted_problem
from jobs.config.settings.settings import Settings
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.merge.mirror_table import mirror_fitting, mirror_key, mirror_schema, refuse_table, refuse_unfit
from jobs.mirrors.model.changed_topics import refuse_recreated_topics
from jobs.mirrors.model.changelog_increment import refuse_moved
from jobs.mirrors.model.mirror_stamp import (
    MirrorStamp,
    SourcePosition,
    mirror_id,
    mirrored,
    refuse_other_rows,
    source_position,
)
from jobs.mirrors.model.session import mirror_rolled_back
from jobs.quality.incremental_scan.increment import snapshots_since
from jobs.tables.commit.history.mirror_merges import newest_merge, other_writes
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.dead_letter_table.tally import tally_dead_letters


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Status of a mirror.

    Attributes:
        table: Name of the mirror.
        stamp: Stamp of the newest merge; None before the first.
        offsets: Offsets of the stream in the changelog at that merge.
        position: Source position that the mirror has reached; None if unknown.
        merged_at: When the newest merge was published.
        lag_rows: Number of changes that the changelog has and the mirror lacks; None if unknown.
        lag_since: When the first of these was committed.
        letters: Dead letters of the stream that have not been replayed.
        others: Snapshots in which somebody else has changed the mirror since its last rebuild.
        problem: Why the next merge will stop, or why the last one beside the stream's driver failed.
    """

    table: str
    stamp: MirrorStamp | None = None
    offsets: Positions | None = None
    position: SourcePosition | None = None
    merged_at: datetime | None = None
    lag_rows: int | None = None
    lag_since: datetime | None = None
    letters: int = 0
    others: tuple[int, ...] = ()
    problem: FrazilError | None = None

    def lag_seconds(self, now: datetime) -> float | None:
        """How long the mirror has lacked a change, in seconds; 0 if it lacks none, None if unknown."""
        if self.lag_rows is None:
            return None
        return max(0.0, (now - self.lag_since).total_seconds()) if self.lag_since else 0.0


def mirror_status(spec: StreamSpec, mirror: Mirror, settings: Settings, catalog: Catalog) -> MirrorStatus:
    """Return a mirror's status from the metadata of its table and of the changelog.

    Raises:
        FrazilError: The catalog does not answer.
    """
    changelog, table = find_table(catalog, spec.table.name), find_table(catalog, mirror.table)
    letters = pending_letters(spec, catalog)
    if table is None:
        rows, since = _lag(spec, changelog, None) if changelog else (0, None)
        problem = _unmade(spec, mirror, changelog, None) or _noted(settings, spec, mirror, None)
        return MirrorStatus(mirror.table, lag_rows=rows, lag_since=since, letters=letters, problem=problem)
    stamped = mirror_id(spec.stream, mirror.table)
    past = history_of(table, stamped)
    problem = mirror_rolled_back(spec, mirror) if past.rolled_back else _unmade(spec, mirror, changelog, table)
    stamp: MirrorStamp | None = None
    try:
        stamp = mirrored(past.newest, spec.stream, mirror.table)
        if stamp is not None and changelog is not None:
            refuse_moved(changelog.metadata, spec.stream, mirror.table, stamp)
            refuse_other_rows(spec, mirror, stamp, mirror_key(spec, mirror, changelog.schema()))
            refuse_recreated_topics(spec, mirror, changelog, stamp)
    except FrazilError as found:
        problem = problem or found
    rows, since = (None, None) if problem or changelog is None else _lag(spec, changelog, stamp)
    merged = newest_merge(table.metadata, stamped) if stamp else None
    merged_at = datetime.fromtimestamp(merged.timestamp_ms / 1000, UTC) if merged else None
    return MirrorStatus(
        mirror.table,
        stamp,
        past.newest.position if stamp and past.newest else None,
        source_position(stamp, spec.stream) if stamp else None,
        merged_at,
        rows,
        since,
        letters,
        other_writes(table.metadata, stamped, stamp.others) if stamp else (),
        problem or _noted(settings, spec, mirror, merged_at),
    )


def pending_letters(spec: StreamSpec, catalog: Catalog) -> int:
    """Return the number of dead letters that are neither replayed nor dismissed; a mirror lacks their changes."""
    letters = find_table(catalog, spec.dead_letter_table)
    return tally_dead_letters(letters, spec.stream).waiting if letters is not None else 0


def _noted(settings: Settings, spec: StreamSpec, mirror: Mirror, merged_at: datetime | None) -> FrazilError | None:
    noted = noted_problem(settings, spec.stream, mirror.table)
    if noted is None or (merged_at is not None and noted.at < merged_at.timestamp()):
        return None
    return FrazilError(noted.problem, fix=noted.fix or f"frazil mirror run {spec.stream}")


def _unmade(spec: StreamSpec, mirror: Mirror, changelog: Table | None, table: Table | None) -> FrazilError | None:
    """Return why the mirror cannot be built, given its file, its changelog and its table; None if it can."""
    if changelog is None:
        return None
    try:
        schema = mirror_schema(spec, mirror, changelog.schema())
        if table is not None and refuse_table(spec, mirror, table, schema):
            refuse_unfit(spec, mirror, mirror_fitting(schema, table.metadata), table.metadata)
    except FrazilError as found:
        return found
    return None


def _lag(spec: StreamSpec, changelog: Table, stamp: MirrorStamp | None) -> tuple[int, datetime | None]:
    """Return the number of changes that a mirror lacks, and the time of the first, from the changelog's snapshots."""
    found = snapshots_since(changelog.metadata, spec.stream, stamp.sequence if stamp else -1)
    rows = sum(int(each.summary["added-records"] or 0) for each in found if each.summary)
    return rows, datetime.fromtimestamp(found[0].timestamp_ms / 1000, UTC) if found else None
