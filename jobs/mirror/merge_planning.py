"""Planning of a merge: what it is told by the stream's file, by the mirror's stamp and its changelog; and its end."""

from __future__ import annotations

import logging
from dataclasses import replace

from pyiceberg.table import Table

from jobs.mirror.changelog_increment import ChangelogIncrement
from jobs.mirror.merge_plan import HistoryStart, MergePlan, MergeResult, MirrorState
from jobs.mirror.mirror_table import KEY_COLUMN, row_columns
from jobs.mirror.waiting_rows import aged
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec

log = logging.getLogger(__name__)


def merge_plan(
    spec: StreamSpec,
    mirror: Mirror,
    changelog: Table,
    key: tuple[str, ...],
    state: MirrorState,
    until: int,
    start: HistoryStart | None,
) -> MergePlan:
    """What a merge into a mirror is told.

    Args:
        key: The columns that tell the mirror's rows apart.
        state: Of the mirror's newest stamp.
        until: The changelog's snapshot that is merged.
        start: Where histories begin; None as long as no change has expired.
    """
    ordered_by_row = spec.changes is not None and bool(spec.changes.order_by)
    keyed = KEY_COLUMN in {field.name for field in changelog.schema().fields}
    return MergePlan(
        spec.stream,
        key,
        row_columns(spec, changelog.schema()),
        state,
        until,
        mirror.deletes,
        mirror.where,
        # Columns of rows may be versions, which say nothing of other rows.
        scope="key" if spec.changes is not None and spec.changes.envelope == "columns" else "source",
        scattered=not keyed and not ordered_by_row,
        coordinates=spec.kafka_columns.coordinates,
        timestamp=spec.kafka_columns.instant_coordinates[3],
        start=start,
    )


def settled(
    spec: StreamSpec, mirror: Mirror, found: ChangelogIncrement, result: MergeResult
) -> tuple[MirrorState, int, int]:
    """The state for the mirror's next stamp, and how many values nobody knows, and changes came too late.

    Args:
        found: What was merged.
    """
    counts, state = result.counts, result.state
    # Where all of the changelog was read, most of it is what the mirror has.
    too_late = 0 if found.why else counts.too_late
    if too_late:
        log.warning(
            "mirror %s: %d changes came too late, from before changes that have expired; they are left out: %s",
            mirror.table, too_late, f"frazil mirror check {spec.stream}",
        )  # fmt: skip
    if counts.unresolved:
        log.warning(
            "mirror %s: %d values were not sent, and no change in the changelog has them for sure; %d of them are of "
            "rows that wait for changes of their former keys: frazil mirror status %s",
            mirror.table, counts.unresolved, counts.awaited, spec.stream,
        )  # fmt: skip
    waiting = aged(state.waiting, found.until.timestamp_ms if found.until else 0)
    # A row that is not waited for any more has one such value at least.
    given_up = len(state.waiting) - len(waiting)
    return replace(state, waiting=waiting), counts.unresolved - counts.awaited + given_up, too_late
