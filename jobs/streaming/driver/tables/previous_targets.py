"""Previous targets: tables that the stream has written and its file no longer names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.parked_places import parked_id
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import GapError, MirrorTableError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    describe_ranges,
    pointwise_max,
    spark_offsets,
)
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY


def refuse_passing_over(
    spec: StreamSpec, catalog: Catalog, kafka: KafkaLog, state: LogState, remembered: dict[str, str]
) -> None:
    """Raise if the file names other tables and `source.start`, which counts for them, is ahead of the stream."""

    def newest(names: Iterable[str]) -> dict[str, Stamp]:
        loaded = {name: catalog.load_table(name).metadata for name in names if catalog.table_exists(name)}
        stamps = {name: _newest(metadata, spec.stream) for name, metadata in loaded.items()}
        return {name: stamp for name, stamp in stamps.items() if stamp}

    named = spec.target_names
    if not remembered or any(name in remembered for name in named):
        return
    former = newest(remembered)
    if not former or newest(named):
        return
    stood = pointwise_max(stamp.position for stamp in former.values())
    first = kafka.first_start(spec.source, state)
    passed = {p: OffsetRange(stood[p], at) for p, at in first.items() if p in stood and stood[p] < at}
    if passed:
        raise GapError(
            f"stream {spec.stream}: it landed in {', '.join(former)} until now; in {', '.join(named)} it would begin "
            f"at `source.start`, past the records {describe_ranges(passed)}, which were never read.",
            fix=f"in streams/{spec.stream}.yaml name the former tables again, or begin with "
            f"`source.start: {{offsets: {spark_offsets({p: range_.start for p, range_ in passed.items()})}}}`",
        )


def refuse_mirrors(spec: StreamSpec, targets: Mapping[str, Target]) -> None:
    """Refuse to begin in a table that is a mirror: its next merge would not know the stream's rows.

    Raises:
        MirrorTableError: A table without a stamp of the stream is a mirror.
    """
    for name, target in targets.items():
        if target.newest is None and (mirror := target.table.metadata.properties.get(MIRROR_PROPERTY)):
            raise MirrorTableError(
                f"stream {spec.stream}: table {name} is a mirror, of {mirror}. Nothing was landed in it.",
                fix=f"name another table in streams/{spec.stream}.yaml",
                table=name,
            )


def _newest(metadata: TableMetadata, stream: str) -> Stamp | None:
    """The newest stamp of the stream on the branch that it wrote."""
    return history(as_written(metadata, stream), stream).newest


def previous_stamps(spec: StreamSpec, targets: Mapping[str, Target], catalog: Catalog) -> dict[str, Stamp | None]:
    """Newest stamps of tables that the coordinator's newest batch names and the spec no longer does.

    For a table that was suspended when that batch landed, it is the placeholder's: its dead letters have the rows.
    """
    newest = targets[spec.coordinator].newest
    if newest is None:
        return {}
    previous: dict[str, Stamp | None] = {}
    by_uuid = {target.uuid: target for target in targets.values()}
    letters = targets.get(spec.dead_letter_table)
    for name in newest.rows:
        if name in targets:
            continue
        if name in newest.parked and letters is not None:
            previous[name] = history(letters.table.metadata, parked_id(spec.stream, name)).newest
            continue
        uuid = newest.targets.get(name, "")
        if uuid in by_uuid:
            # The table was renamed, and lacks what it lacked.
            previous[name] = by_uuid[uuid].newest
            continue
        if catalog.table_exists(name):
            previous[name] = _newest(catalog.load_table(name).metadata, spec.stream)
        else:
            # Dropping the table removed the batch from it, so the batch counts as committed.
            previous[name] = newest
    return previous
