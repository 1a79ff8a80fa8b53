"""Planning of a merge: what it is told by the stream's file, by the mirror's stamp and by its changelog."""

from __future__ import annotations

from pyiceberg.table import Table

from jobs.mirror.merge_plan import HistoryStart, MergePlan, MirrorState
from jobs.mirror.mirror_table import KEY_COLUMN, row_columns
from jobs.spec.mirror import Mirror
from jobs.spec.models import StreamSpec


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
