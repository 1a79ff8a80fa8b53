"""Decision to discard: what of a held interval it takes, whether it can be carried out, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
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
    """What a discard did, or would do.

    Attributes:
        discard: The decision; finished, unless it is only shown.
        interval: Of the branch.
        letters: Its dead letters; of one that is only shown, only how many there would be.
        resumed: Whether an earlier discard had decided it, and had not finished.
        snapshot_id: Main's new head; None if it is only shown.
    """

    discard: Discard
    interval: Interval
    letters: LetterCounts
    resumed: bool = False
    snapshot_id: int | None = None


def plan_discard(
    spec: StreamSpec, settings: Settings, catalog: Catalog, by: str, why: str, through: int | None = None
) -> DiscardResult:
    """What a discard would do; nothing is changed, and Kafka is not asked.

    Args:
        by: Who would discard.
        why: The reason.
        through: The last snapshot of the branch that is discarded; None: all that is held.

    Raises:
        FrazilError: Nothing is held, or the rows do not say which records they are of.
    """
    refuse_without_gate(spec)
    table, newest = published_table(spec, settings, catalog)
    refuse_undiscardable(spec, table)
    resumed = Discards.of(table.metadata.properties, spec.stream, spec.table.name).unfinished is not None
    made, found = decision(spec, table, newest, by, why, through, datetime.now(UTC))
    records = DiscardedLetters(spec, table, found.files, made, NoRecords()).records()
    return DiscardResult(made, found, LetterCounts(records), resumed)


def refuse_undiscardable(spec: StreamSpec, table: Table) -> None:
    """See that the stream has a gate, and that the rows of its table say which records they are of.

    Raises:
        FrazilError: It has none, or they do not.
    """
    refuse_without_gate(spec)
    if not spec.kafka_columns.locate_rows_of(table.schema()):
        raise FrazilError(
            f"stream {spec.stream}: the rows of table {spec.table.name} do not say which records they are of, so no "
            "dead letters can be made of them.",
            fix=f"`frazil release {spec.stream}`, and delete from main what must go; with table.kafka_columns later "
            "rows say it",
        )


def decision(
    spec: StreamSpec, table: Table, newest: Stamp | None, by: str, why: str, through: int | None, at: datetime
) -> tuple[Discard, Interval]:
    """What is to be discarded of what is held; or what an earlier discard has decided, and not finished.

    Args:
        table: Its own, not as a branch has it.
        newest: The stamp of the last publication.
        by: Who decides.
        why: The reason.
        through: The last snapshot that is discarded; None: all that is held.
        at: When.

    Raises:
        FrazilError: Nothing is held, or `through` is no snapshot of it.
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
                f"stream {spec.stream}: snapshot {through} brought no rows of what is held.",
                fix=f"name one of the {len(found.snapshots):,} that did, such as {named}",
            )
        found = interval_of(spec, table, newest, snapshot.sequence_number or 0)
        assert found is not None, "the branch is there"
    until = found.until
    return Discard("", branch, found.after, until, found.rows, found.ranges, at, by, why, held.reasons), found


def discarded_interval(spec: StreamSpec, table: Table, decided: Discard) -> Interval:
    """The interval that is discarded, as the branch has it.

    Args:
        table: Its own, not as a branch has it.
        decided: The decision.

    Raises:
        UnpublishableError: The branch does not have it any more.
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
            fix=f"move it back to where it has them, in Spark: ALTER TABLE … REPLACE BRANCH {decided.branch} AS OF "
            "VERSION …",
        )
    return found
