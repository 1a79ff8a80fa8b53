"""Iceberg sink that wrote a stream's tables before: checks that the two do not land the same records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.spark_names import spark_name
from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.history.branch import described, whole_table
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.sink_record import SINK_OFFSETS, commits_since_takeover, takeover_record
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import GapError, SinkRestartedError

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, eq=False)
class TableHead:
    """A table of a stream, as the branch that the stream writes has it."""

    name: str
    branch: str
    metadata: TableMetadata


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


def refuse_restarted_sink(stream: str, coordinator: TableMetadata, tables: Iterable[TableHead]) -> None:
    """Refuse to land beside a sink that was started again after the takeover.

    Args:
        coordinator: Metadata of the coordinator table, which has the record of the takeover.
        tables: Tables of the stream, all of which the message names.

    Raises:
        SinkRestartedError: The sink has committed to a table since the takeover.
    """
    if (record := takeover_record(coordinator, stream)) is None:
        return
    commits = {head: commits for head in tables if (commits := commits_since_takeover(head.metadata, record))}
    if not commits:
        return
    named = [_described_commits(head, found) for head, found in commits.items()]
    more = f"; and to {len(named) - _MOST_NAMED} more tables" if len(named) > _MOST_NAMED else ""
    keep = f"frazil takeover {stream} --from-connect {record.connector} --connect URL"
    ways = f"keep its rows: {keep}, which goes on behind both"
    # If the rows stay in one table, the takeover has to go on behind them. Another table would then lack records.
    rollbacks = [_rollback(head, found[0], stream) for head, found in commits.items()]
    if None not in rollbacks:
        commands = "; ".join(filter(None, rollbacks))
        ways = f"take its rows out, in Spark: {commands}, then frazil start {stream}; or {ways}"
    raise SinkRestartedError(
        f"stream {stream}: connector {record.connector} was started again after the takeover. It has committed to "
        f"{'; '.join(named[:_MOST_NAMED])}{more}. The stream lands its records as well, so they exist twice.",
        fix=f"stop the connector; then {ways}",
        table=next(iter(commits)).name,
    )


def _described_commits(head: TableHead, commits: Sequence[Snapshot]) -> str:
    at = datetime.fromtimestamp(commits[0].timestamp_ms / 1000, UTC)
    more = f" and {len(commits) - 1} later ones" if len(commits) > 1 else ""
    return f"{described(head.name, head.branch)}: snapshot {commits[0].snapshot_id} of {at:%Y-%m-%d %H:%M} UTC{more}"


def _rollback(head: TableHead, first: Snapshot, stream: str) -> str | None:
    """The command that takes out a snapshot and all later ones; None if the one before may hold rows of the sink."""
    before = first.parent_snapshot_id
    if before is None or not _descends_from_stamp(head.metadata, before, stream):
        return None
    if head.branch != MAIN_BRANCH:
        return f"ALTER TABLE {spark_name(head.name)} REPLACE BRANCH {spark_name(head.branch)} AS OF VERSION {before}"
    return f"CALL system.rollback_to_snapshot('{spark_name(head.name)}', {before})"


def _descends_from_stamp(metadata: TableMetadata, snapshot_id: int, stream: str) -> bool:
    """Whether a snapshot, or one of its existing ancestors, is a commit of the stream.

    If not, earlier commits of the sink may have expired. The snapshot then holds their rows.
    """
    stamped = {stamped_id for stamped_id, _ in stamps_along_main(metadata, stream)}
    return any(snapshot.snapshot_id in stamped for snapshot in ancestors(metadata, snapshot_id))


def refuse_rows_of_a_sink(spec: StreamSpec, targets: Mapping[str, Target]) -> None:
    """Raise if a stream would begin at an end of its topics in a table that an Iceberg sink of Kafka Connect filled.

    From the beginning, everything that the sink has landed would land again. From the end, everything that it has not
    landed would be lost. Offsets and a time in `source.start` are a decision, and pass. So does a branch that the
    stream makes itself, unless it is published to main: it is a trial.

    Raises:
        GapError: The stream has no position yet, and a snapshot of its table has the sink's position.
    """
    if any(target.newest for target in targets.values()) or spec.source.start not in ("earliest", "latest"):
        return
    for name, target in targets.items():
        is_trial = spec.publish is None and spec.branch_of(name) not in {MAIN_BRANCH, *whole_table(target.table).refs()}
        if not is_trial and (keys := _sink_keys(target.table.metadata)):
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
