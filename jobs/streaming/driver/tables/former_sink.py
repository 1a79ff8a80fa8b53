"""Iceberg sink that wrote a stream's tables before: checks that the two do not land the same records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.spark_names import spark_name
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.branch import described
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.sink_record import SINK_OFFSETS, commits_since_takeover, takeover_record
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import GapError, SinkRestartedError


def refuse_handed_back(stream: str, coordinator: TableMetadata) -> None:
    """Refuse to land after `frazil offsets --commit-to-group`, as the sink lands the same records.

    Raises:
        GapError: The stream gave its position back, and has not taken over again.
    """
    record = takeover_record(coordinator, stream)
    if record is not None and record.handed_back is not None:
        raise GapError(
            f"stream {stream} gave its position back to connector {record.connector} (group {record.offset_group}). "
            "Both would land the same records.",
            fix=f"frazil takeover {stream} --from-connect {record.connector}, which goes on where the connector ended; "
            "if its group was deleted since, set the offsets first: kafka-consumer-groups.sh --reset-offsets --group "
            f"{record.offset_group} --topic TOPIC:PARTITION --to-offset OFFSET --execute (frazil offsets {stream} "
            "shows those of the hand-back)",
        )


def refuse_restarted_sink(
    stream: str, coordinator: TableMetadata, table: str, branch: str, metadata: TableMetadata
) -> None:
    """Refuse to land beside a sink that was started again after the takeover.

    Args:
        coordinator: Metadata of the coordinator table, which has the record of the takeover.
        metadata: Metadata of a table of the stream, as the branch has them.

    Raises:
        SinkRestartedError: The sink has committed to the table since the takeover.
    """
    record = takeover_record(coordinator, stream)
    commits = commits_since_takeover(metadata, record) if record is not None else []
    if record is None or not commits:
        return
    first = commits[0]
    at = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)
    more = f" and {len(commits) - 1} later ones" if len(commits) > 1 else ""
    again = f"frazil takeover {stream} --from-connect {record.connector} --connect URL"
    keep = f"keep its rows: {again}, which goes on behind both"
    before = first.parent_snapshot_id
    if before is not None and _descends_from_stamp(metadata, before, stream):
        back = f"CALL system.rollback_to_snapshot('{spark_name(table)}', {before})"
        if branch != MAIN_BRANCH:
            back = f"ALTER TABLE {spark_name(table)} REPLACE BRANCH {spark_name(branch)} AS OF VERSION {before}"
        keep = f"take its rows out, in Spark: {back}, then frazil start {stream}; or {keep}"
    raise SinkRestartedError(
        f"stream {stream}: connector {record.connector} was started again after the takeover. It has committed to "
        f"{described(table, branch)}: snapshot {first.snapshot_id} of {at:%Y-%m-%d %H:%M} UTC{more}. The stream lands "
        "its records as well, so they exist twice.",
        fix=f"stop the connector; then {keep}",
        table=table,
    )


def _descends_from_stamp(metadata: TableMetadata, snapshot_id: int, stream: str) -> bool:
    """Whether a snapshot, or one of its existing ancestors, is a commit of the stream.

    If not, earlier commits of the sink may have expired. The snapshot then holds their rows.
    """
    stamped = {stamped_id for stamped_id, _ in stamps_along_main(metadata, stream)}
    return any(snapshot.snapshot_id in stamped for snapshot in ancestors(metadata, snapshot_id))


def refuse_rows_of_a_sink(spec: StreamSpec, targets: Mapping[str, Target]) -> None:
    """Raise if a stream would begin at an end of its topics in a table that an Iceberg sink of Kafka Connect filled.

    From the beginning, everything that the sink has landed would land again. From the end, everything that it has not
    landed would be lost. Offsets and a time in `source.start` are a decision, and pass.

    Raises:
        GapError: The stream has no position yet, and a snapshot of its table has the sink's position.
    """
    if any(target.newest for target in targets.values()) or spec.source.start not in ("earliest", "latest"):
        return
    for name, target in targets.items():
        if spec.branch_of(name) == MAIN_BRANCH and (keys := _sink_keys(target.table.metadata)):
            raise GapError(
                f"stream {spec.stream}: table {name} has rows of a Kafka Connect sink ({keys[0]}), and the stream has "
                f"no position. From source.start, {spec.source.start}, records would land twice or be left out.",
                fix=f"frazil takeover {spec.stream} --from-connect NAME; or, if the sink read other topics, write "
                "offsets or a time in source.start",
            )


def _sink_keys(metadata: TableMetadata) -> list[str]:
    """Keys of snapshot summaries in which a sink keeps its position, newest first."""
    return [
        key
        for snapshot in reversed(metadata.snapshots)
        for key in (snapshot.summary.additional_properties if snapshot.summary else ())
        if key.startswith(SINK_OFFSETS)
    ]
