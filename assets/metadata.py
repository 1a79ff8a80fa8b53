"""Metadata of assets: tables, one-off runs and drivers. Names are stable and carry their unit, or are Dagster's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.quality.publishing.main_freshness import MainFreshness, main_freshness
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS, KafkaColumns
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from jobs.streaming.supervision.documents.measures import EVENT_TIMES, LATENESS, Measure
from jobs.tables.commit.history.branch import TableOnBranch
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.event_times import as_datetime
from jobs.tables.commit.stamp.offsets import by_topic
from jobs.tables.commit.stamp.stamps import Stamp

if TYPE_CHECKING:
    from jobs.streaming.driver.process.drain import Drained


_MEANINGS = {
    "topic": "The topic that the record was read from.",
    "partition": "The record's partition in its topic.",
    "offset": "The record's offset in its partition: with topic and partition it names the record.",
    "timestamp": "The record's timestamp in Kafka.",
    "timestamp_type": "Whose clock the timestamp is of: the producer's (CreateTime) or the broker's (LogAppendTime).",
    "key": "The record's key, as it was sent.",
    "headers": "The record's headers, in their order.",
}


# Descriptions of dead-letter columns that have none in the table's schema.
DEAD_LETTER_MEANINGS = {
    **{name: _MEANINGS[name] for name in ("topic", "partition", "offset", "headers")},
    "batch_id": "The number of the batch that the record failed in.",
    "epoch": "The epoch of the driver, or of the one-off run, that read the record.",
}
# Metadata that an operator reads first, in this order: Dagster keeps the given order.
_READ_FIRST = (
    "state", "next", "state_since", "last_error", "log_tail", "quarantined", "parked_tables", "consumer_lag_records",
    "records_per_second", "behind_seconds", "complete_through", "dead_letter_ratio", "dead_letters_waiting", "letters",
    "commit_ms", "batch_duration_ms", "last_commit", "dagster/row_count", "records_added",
)  # fmt: skip
# Metadata of a WAP stream that describes main instead of the branch.
_OF_BRANCH = frozenset({"complete_through", "behind_seconds", "watermark", "watermark_lag_s"})


def column_schema(
    schema: Schema, kafka: KafkaColumns = NO_KAFKA_COLUMNS, meanings: Mapping[str, str] = MappingProxyType({})
) -> dg.TableSchema:
    """An Iceberg schema as Dagster shows it.

    Args:
        kafka: Columns of the schema that hold Kafka's metadata.
        meanings: Descriptions by column, for columns that the schema does not describe.
    """
    meanings = {**meanings, **{each.name: _MEANINGS[each.part] for each in kafka.columns}}
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                type_text(field.field_type),
                description=field.doc or meanings.get(field.name),
                constraints=dg.TableColumnConstraints(nullable=not field.required),
            )
            for field in schema.fields
        ]
    )


def type_text(type_: IcebergType) -> str:
    """An Iceberg type as people write it: without the field ids that PyIceberg prints in nested types."""
    match type_:
        case StructType():
            fields = [
                f"{field.name}: {type_text(field.field_type)}{' not null' if field.required else ''}"
                for field in type_.fields
            ]
            return f"struct<{', '.join(fields)}>"
        case ListType():
            return f"list<{type_text(type_.element_type)}>"
        case MapType():
            return f"map<{type_text(type_.key_type)}, {type_text(type_.value_type)}>"
        case _:
            return str(type_)


def cell(text: str) -> str:
    """Text escaped for a cell of a Markdown table, so that a type such as `list<int>` is no HTML tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def row_count(table: Table) -> int:
    """The table's rows, by the summary of its newest snapshot."""
    return summed_rows(table.current_snapshot())


def summed_rows(snapshot: Snapshot | None) -> int:
    """The rows of a table at a snapshot, by its summary; 0 without a snapshot.

    Position deletes are subtracted. Rows that equality deletes remove still count, because no summary counts them.
    """
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))


def table_metadata(table: Table, name: str, kafka: KafkaColumns = NO_KAFKA_COLUMNS) -> dict[str, Any]:
    """The metadata of any table after a commit.

    Args:
        kafka: Columns of the table that hold Kafka's metadata.
    """
    snapshot = table.current_snapshot()
    return {
        "dagster/row_count": row_count(table),
        "dagster/column_schema": column_schema(table.schema(), kafka),
        "dagster/table_name": name,
        "dagster/uri": table.location(),
        # As text: JavaScript rounds integers as large as snapshot ids.
        "snapshot_id": str(snapshot.snapshot_id) if snapshot else "none",
    }


def landed_metadata(spec: StreamSpec, drained: Drained, table: Table) -> dict[str, Any]:
    """The metadata of the stream's table after a one-off run."""
    counts, snapshot = drained.counts, table.current_snapshot()
    batches = drained.batches
    commit_ms = [batch.commit_seconds * 1000 for batch in batches]
    metadata: dict[str, Any] = {
        **table_metadata(table, spec.table.name, spec.kafka_columns),
        **look_up_metadata(spec.stream, snapshot.snapshot_id if snapshot else None),
        "records_read": counts.read,
        "records_landed": counts.landed,
        "records_dead": counts.dead,
        "tombstones": counts.tombstones,
        **({"filtered": counts.filtered} if counts.filtered else {}),
        "consumer_lag_records": sum(drained.lag.values()),
        "undecided_records": sum(drained.undecided.values()),
        "offsets": dg.MetadataValue.json(by_topic(drained.positions)),
        "batches": len(batches),
        "data_files": sum(batch.files for batch in batches),
        "duration_s": round(drained.seconds, 3),
        "records_per_second": round(counts.read / drained.seconds) if drained.seconds else 0,
        "commit_ms": round(sum(commit_ms) / len(commit_ms)) if commit_ms else 0,
        **dead_letter_ratio(counts.dead, counts.read),
        "commit_share": round(sum(commit_ms) / 1000 / drained.seconds, 4) if drained.seconds else 0.0,
        "refused_commits": drained.refusals,
        "epoch": drained.epoch,
        "config_hash": spec.config_hash,
    }
    metadata |= freshness_metadata(drained.valid_through_ms, drained.watermark_ms)
    if spec.event_time is not None:
        # Zeros before the first watermark, so that the plots have no gap.
        metadata |= {"records_late": 0, "latest_late_s": 0.0}
    metadata |= figures_metadata(drained_event_times(drained), EVENT_TIMES + LATENESS)
    unknown = Counter[str]()
    for batch in batches:
        unknown.update({path: met.records for path, met in batch.unknown_fields.items()})
    if warned := sum((Counter(batch.warned) for batch in batches), Counter[str]()):
        metadata["rule_warnings"] = counts_table("rule", warned)
    if unknown:
        metadata["unknown_fields"] = counts_table("field", unknown)
    return metadata


def drained_event_times(drained: Drained) -> Work:
    """The event times and late records of a one-off run, in the form of a driver's heartbeat."""
    events = drained.events
    return Work(
        watermark_ms=drained.watermark_ms,
        late=events.late_records,
        late_by=events.late,
        latest_ms=events.latest_ms,
        event_ms=events.span_ms,
    )


def figures_metadata(work: Work, measures: Iterable[Measure[Work]]) -> dict[str, Any]:
    """Figures of a heartbeat under the metadata keys of the measures; unknown figures are left out."""
    figures = {
        measure.metadata: _figure(measure, value)
        for measure in measures
        if measure.metadata and (value := measure.source(work)) is not None
    }
    return {key: figure for key, figure in figures.items() if figure is not None}


def _figure(measure: Measure[Work], value: Any) -> Any:
    if measure.is_time:
        # An event time may lie outside of the years that Dagster can show.
        at = as_datetime(round(value * 1000))
        return at and dg.MetadataValue.timestamp(at)
    match len(measure.labels):
        case 0:
            return round(value * 1000) if measure.metadata.endswith("_ms") else round(value, 3)
        case 1:
            records = [dg.TableRecord({measure.metadata: name, "records": count}) for name, count in value.items()]
            return dg.MetadataValue.table(records) if any(value.values()) else None
        case _:
            return dg.MetadataValue.json(value)


def dead_letter_metadata(spec: StreamSpec, drained: Drained, table: Table) -> dict[str, Any]:
    """The metadata of the dead-letter table after a one-off run."""
    metadata = {**table_metadata(table, spec.dead_letter_table), "records_dead": drained.counts.dead}
    reasons = sum((Counter(batch.reasons) for batch in drained.batches), Counter[str]())
    if reasons:
        metadata["reasons"] = counts_table("error_class", reasons)
    return metadata


def counts_table(name: str, counts: Mapping[str, int]) -> dg.TableMetadataValue:
    """Counts as a Markdown table for metadata, the greatest first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dg.MetadataValue.table([dg.TableRecord({name: key, "records": count}) for key, count in ordered])


def driver_metadata(beat: Heartbeat | None) -> dict[str, Any]:
    """The identity of a driver, and the addresses of its log, Spark UI and metrics."""
    if beat is None:
        return {}
    found: dict[str, Any] = {
        "state": beat.state,
        "generation": beat.generation,
        "attempt": beat.attempt,
        "epoch": beat.epoch,
        "driver_pid": beat.pid,
        "driver_host": beat.host,
    }
    if beat.group:
        found["driver_group"] = beat.group
    if beat.log:
        found["driver_log"] = dg.MetadataValue.path(beat.log)
    if beat.ui_url:
        found["spark_ui"] = dg.MetadataValue.url(beat.ui_url)
    if beat.metrics_url:
        found["metrics"] = dg.MetadataValue.url(beat.metrics_url)
    return found


def instant(seconds: float) -> dg.TimestampMetadataValue:
    """A time as Dagster's metadata.

    Args:
        seconds: Seconds since 1970.
    """
    return dg.MetadataValue.timestamp(datetime.fromtimestamp(seconds, UTC))


def in_reading_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with `_READ_FIRST` at the top; the rest keeps its order."""
    first = {name: metadata[name] for name in _READ_FIRST if name in metadata}
    return first | {name: value for name, value in metadata.items() if name not in first}


def dead_letter_ratio(dead: int, read: int) -> dict[str, float]:
    """The ratio of records that became dead letters, as metadata; empty if no record was read."""
    return {"dead_letter_ratio": round(dead / read, 6)} if read else {}


def freshness_metadata(through_ms: float | None, watermark_ms: float | None) -> dict[str, Any]:
    """The time through which a stream's tables are complete, and its watermark, each with its lag in seconds.

    Args:
        through_ms: Time through which the tables are complete, in milliseconds since 1970; None if unknown.
        watermark_ms: Watermark in milliseconds since 1970; None without an event time.
    """
    metadata: dict[str, Any] = {}
    if through_ms is not None:
        metadata |= {"complete_through": instant(through_ms / 1000), "behind_seconds": _seconds_since(through_ms)}
    if watermark_ms is not None:
        metadata |= {"watermark": instant(watermark_ms / 1000), "watermark_lag_s": _seconds_since(watermark_ms)}
    return metadata


def _seconds_since(at_ms: float) -> int:
    return round(max(0.0, time.time() - at_ms / 1000))


def branch_metadata(unpublished: int | None, through: float | None, watermark: float | None) -> dict[str, Any]:
    """Metadata of the branch of a WAP stream, beside main's.

    Args:
        unpublished: Number of rows that main lacks; None if unknown.
        through: Time through which the branch is complete; seconds since 1970.
        watermark: Watermark of the branch; seconds since 1970.
    """
    metadata: dict[str, Any] = {} if unpublished is None else {"unpublished_rows": unpublished}
    if through is not None:
        metadata["branch_complete_through"] = instant(through)
    if watermark is not None:
        metadata["branch_watermark"] = instant(watermark)
    return metadata


def as_main_has_it(
    spec: StreamSpec, table: Table, told: dict[str, Any], through_ms: int | None, watermark_ms: int | None
) -> dict[str, Any]:
    """The metadata of a stream's table as readers see it: for a WAP stream that of main, beside the branch's.

    Args:
        table: Table on the stream's branch.
        told: Metadata reported for the branch.
        through_ms: Time through which the branch is complete, in milliseconds since 1970.
        watermark_ms: Watermark of the branch, in milliseconds since 1970.
    """
    if spec.publish is None or not isinstance(table, TableOnBranch):
        return told
    main = main_freshness(table.whole, spec.stream, table.branch) or MainFreshness()
    head = table.whole.current_snapshot()
    found = {name: each for name, each in told.items() if name not in _OF_BRANCH} | {
        "dagster/row_count": summed_rows(head),
        "snapshot_id": str(head.snapshot_id) if head else "none",
        **look_up_metadata(spec.stream, head.snapshot_id if head else None, on_main=True),
    }
    landed, mark = (None if each is None else each / 1000 for each in (through_ms, watermark_ms))
    readers = (main.through(landed), main.watermark(mark))
    found |= freshness_metadata(*(None if each is None else each * 1000 for each in readers))
    return found | branch_metadata(main.rows, landed, mark)


def look_up_metadata(stream: str, snapshot_id: int | None, *, on_main: bool = False) -> dict[str, str]:
    """The command that shows what a snapshot of the stream's table holds.

    Args:
        on_main: Whether the snapshot is on main although the stream writes a branch.
    """
    branch = " --branch main" if on_main else ""
    return {} if snapshot_id is None else {"look_up": f"frazil at {stream} --snapshot {snapshot_id}{branch}"}


def snapshot_metadata(snapshot_id: int | None) -> dict[str, str]:
    """A snapshot's id as metadata. It is text, because JavaScript rounds such large integers."""
    return {} if snapshot_id is None else {"snapshot_id": str(snapshot_id)}


def snapshot_tags(snapshot_id: int | None) -> dict[str, str]:
    """The tag with the data version of an event about this snapshot."""
    return {} if snapshot_id is None else {"dagster/data_version": str(snapshot_id)}


def routed_table_metadata(spec: StreamSpec, target: TargetSpec, table: Table) -> dict[str, Any]:
    """The metadata of a table of a stream's rows, as it is now."""
    head = table.current_snapshot()
    told = table_metadata(table, target.name, spec.kafka_columns)
    return told | look_up_metadata(spec.stream, head.snapshot_id if head else None)


def landed_rows(stream: str, table: Table, epoch: int) -> dict[str, int]:
    """Rows of a stream that a table got in an epoch, and the number of their batches, counted from its stamps.

    Batches that this epoch completed for an earlier driver count. Batches whose snapshots have expired do not.
    """
    stamps = takewhile(
        lambda each: each.epoch >= epoch, (each for _, each in stamps_along_main(table.metadata, stream))
    )
    rows = [_rows(stamp) for stamp in stamps if stamp.kind == "batch" and stamp.epoch == epoch]
    return {"rows_landed": sum(rows), "batches": sum(1 for each in rows if each)}


def _rows(stamp: Stamp) -> int:
    """The rows of a batch that went to the stamped table itself."""
    return stamp.counts.landed - sum(part.elsewhere for part in stamp.parts.values())


def routed_drain_metadata(spec: StreamSpec, target: TargetSpec, drained: Drained, table: Table) -> dict[str, Any]:
    """The metadata of a routed table, other than the main table, after a one-off run."""
    told: dict[str, Any] = {
        **routed_table_metadata(spec, target, table),
        **landed_rows(spec.stream, table, drained.epoch),
        "offsets": dg.MetadataValue.json(by_topic(drained.positions)),
        "epoch": drained.epoch,
        "config_hash": spec.config_hash,
    }
    return told | freshness_metadata(drained.valid_through_ms, drained.watermark_ms)


def routed_running_metadata(
    spec: StreamSpec, target: TargetSpec, sentence: str, work: Work | None, table: Table | None
) -> dict[str, Any]:
    """The metadata of a routed table, other than the main table, while a driver runs.

    Args:
        sentence: Outcome of `ensure_running`.
        work: Work in the driver's newest heartbeat; None without a heartbeat.
        table: The table as it is now; None if the driver has not created it yet.
    """
    told: dict[str, Any] = {"done": sentence}
    if table is not None:
        told |= routed_table_metadata(spec, target, table)
    if work is not None:
        told |= {"offsets": dg.MetadataValue.json(work.position)}
        told |= freshness_metadata(work.valid_through_ms, work.watermark_ms)
    return told
