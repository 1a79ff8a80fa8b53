"""Decision to discard: its part of the quarantined snapshots, whether it is possible, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.discarded_letters import DiscardedLetters, LetterCounts, NoRecords
from jobs.quality.publishing.gated import held_interval, refuse_without_gate
from jobs.quality.publishing.interval import Interval, UnpublishableError, interval_since
from jobs.quality.publishing.publishing import interval_of, published_table
from jobs.tables.commit.history.discards import Discard, Discards
from jobs.tables.commit.stamp.stamps import Stamp


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """Result of a discard, done or planned.

    Attributes:
        discard: The decision; finished, unless only planned.
        interval: Discarded snapshots of the branch.
        letters: Counts of its dead letters; if only planned, just their number.
        resumed: Whether an earlier discard decided it and did not finish.
        snapshot_id: Main's new head; None if only planned.
    """

    discard: Discard
    interval: Interval
    letters: LetterCounts
    resumed: bool = False
    snapshot_id: int | None = None


def plan_discard(
    spec: StreamSpec, settings: Settings, catalog: Catalog, by: str, why: str, through: int | None = None
) -> DiscardResult:
    """Plan a discard; nothing is changed, and Kafka is not asked.

    Args:
        by: Author.
        why: Reason.
        through: Last discarded snapshot of the branch; None: all that is quarantined.

    Raises:
        FrazilError: Nothing is quarantined, or the rows do not have their coordinates.
    """
    refuse_without_gate(spec)
    table, newest = published_table(spec, settings, catalog)
    refuse_undiscardable(spec, table)
    resumed = Discards.of(table.metadata.properties, spec.stream, spec.table.name).unfinished is not None
    made, found = decision(spec, table, newest, by, why, through, datetime.now(UTC))
    records = DiscardedLetters(spec, table, found.files, made, NoRecords()).records()
    return DiscardResult(made, found, LetterCounts(records), resumed)


def refuse_undiscardable(spec: StreamSpec, table: Table) -> None:
    """Raise unless the stream uses write-audit-publish and its table's rows have their coordinates.

    Raises:
        FrazilError: One of these is missing.
    """
    refuse_without_gate(spec)
    if not spec.kafka_columns.locate_rows_of(table.schema()):
        raise FrazilError(
            f"stream {spec.stream}: the rows of table {spec.table.name} do not name their records, so they cannot "
            "become dead letters.",
            fix=f"`frazil release {spec.stream}`, and delete from main what must go; with table.kafka_columns later "
            "rows name them",
        )


def decision(
    spec: StreamSpec, table: Table, newest: Stamp | None, by: str, why: str, through: int | None, at: datetime
) -> tuple[Discard, Interval]:
    """Decide what to discard of the quarantined snapshots, or find an earlier unfinished decision.

    Args:
        table: The whole table, not seen from a branch.
        newest: Stamp of the last publication.
        by: Author.
        why: Reason.
        through: Last discarded snapshot; None: all that is quarantined.
        at: Time of the decision.

    Raises:
        FrazilError: Nothing is quarantined, or `through` is no quarantined snapshot.
    """
    metadata, branch = table.metadata, spec.branch_of(spec.table.name)
    if (before := Discards.of(metadata.properties, spec.stream, spec.table.name).unfinished) is not None:
        return before, discarded_interval(spec, table, before)
    _, held, found = held_interval(spec, table, newest)
    if through is not None:
        snapshot = metadata.snapshot_by_id(through)
        if snapshot is None or through not in found.snapshots:
            named = ", ".join(map(str, found.snapshots[:5]))
            raise FrazilError(
                f"stream {spec.stream}: snapshot {through} brought no quarantined rows.",
                fix=f"name one of the {len(found.snapshots):,} that did, such as {named}",
            )
        found = interval_of(spec, table, newest, snapshot.sequence_number or 0)
        assert found is not None, "the branch exists"
    until = found.until
    return Discard("", branch, found.after, until, found.rows, found.ranges, at, by, why, held.reasons), found


def discarded_interval(spec: StreamSpec, table: Table, decided: Discard) -> Interval:
    """Discarded snapshots of the branch.

    Args:
        table: The whole table, not seen from a branch.
        decided: The decision.

    Raises:
        UnpublishableError: The branch no longer has them.
    """
    before = [
        each
        for each in Discards.of(table.metadata.properties, spec.stream, spec.table.name).on(decided.branch)
        if each.id != decided.id
    ]
    metadata, stream = table.metadata, spec.stream
    found = interval_since(metadata, table.io, stream, decided.branch, decided.after, decided.until, without=before)
    if found is None or found.rows != decided.rows:
        raise UnpublishableError(
            f"stream {stream}: branch {decided.branch} does not have the {decided.rows:,} rows any more that "
            f"{decided.by} has decided to discard: somebody has moved it. Nothing was discarded.",
            fix="move it back to where it has them, in Spark: ALTER TABLE … REPLACE BRANCH "
            f"{spark_name(decided.branch)} AS OF VERSION …",
        )
    return found
